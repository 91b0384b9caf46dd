package kueueconfig_test

import (
	"testing"

	"sigs.k8s.io/kueue/apis/config/v1beta1"
	"sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/program"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/kueueconfig"
)

// FuzzConfiguration reads any file as Kueue's, of either version: it is taken or refused with a reason.
func FuzzConfiguration(f *testing.F) {
	for _, text := range []string{
		"", "{}", "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n",
		"waitForPodsReady: {enable: true, timeout: -1s, requeuingStrategy: {backoffLimitCount: -1, backoffBaseSeconds: 2147483647}}\n",
		"fairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}\nadmissionFairSharing: {usageHalfLifeTime: -1h, usageSamplingInterval: 0s, resourceWeights: {cpu: -1}}\n",
		"integrations: {frameworks: [batch/job, pod, \"\"], podOptions: {namespaceSelector: {matchExpressions: [{key: a, operator: Nonsense}]}}}\n",
		"resources: {excludeResourcePrefixes: [\"\"], transformations: [{input: a, strategy: Replace, outputs: {b: 1e30}}], deviceClassMappings: [{name: a, deviceClassNames: [b]}]}\n",
		"managedJobsNamespaceSelector: {matchLabels: {a: b}}\ncontroller: {groupKindConcurrency: {Job.batch: -1}}\n",
		"multiKueue: {gcInterval: null, origin: a, workerLostTimeout: 9223372036854775807s}\n",
		"metrics: {bindAddress: nonsense}\nhealth: null\nwebhook: {port: 99999999999}\n", "- a\n", "\x00", "a: &a [*a]\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		options := func(cfg *v1alpha1.QueueConfiguration, err error) {
			if err == nil {
				_, _ = engineview.Options(cfg, features.Set{})
			}
		}
		old, now := &v1beta1.Configuration{}, &v1beta2.Configuration{}
		if program.DecodeStrict(data, old) == nil {
			cfg := v1alpha1.NewQueueConfiguration()
			options(cfg, kueueconfig.FromV1beta1(old, cfg))
		}
		if program.DecodeStrict(data, now) == nil {
			cfg := v1alpha1.NewQueueConfiguration()
			options(cfg, kueueconfig.FromV1beta2(now, cfg))
		}
	})
}
