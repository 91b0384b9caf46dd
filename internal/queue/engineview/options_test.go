package engineview

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/features"
)

func TestEngineFollowsTheConfiguration(t *testing.T) {
	cfg := v1alpha1.NewQueueConfiguration()
	plain, err := Options(cfg, features.Set{})
	if err != nil || plain.Policy != admission.PolicyDefault || plain.BlockUntilReady || plain.PreemptionDelay != 0 || plain.PreemptionCooldown != 0 || plain.NoRings {
		t.Fatalf("without a word it is Kueue's default: %+v, %v", plain, err)
	}
	cfg.FairSharing = &kueueconfig.FairSharing{PreemptionStrategies: []kueueconfig.PreemptionStrategy{kueueconfig.LessThanInitialShare}}
	cfg.WaitForPodsReady = &kueueconfig.WaitForPodsReady{
		BlockAdmission:    ptr.To(true),
		RequeuingStrategy: &kueueconfig.RequeuingStrategy{Timestamp: ptr.To(kueueconfig.CreationTimestamp)},
	}
	cfg.Recommend()
	cfg.AdmissionFairSharing = &kueueconfig.AdmissionFairSharing{UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}}
	got, err := Options(cfg, features.Set{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Policy != admission.PolicyDRF || len(got.FairStrategies) != 1 || got.FairStrategies[0] != admission.LessThanInitialShare ||
		!got.BlockUntilReady || !got.RequeueByCreation || got.UsageHalfLife != time.Hour ||
		got.PreemptionDelay != time.Second || got.PreemptionCooldown != time.Minute || !got.NoRings {
		t.Errorf("engine options %+v", got)
	}
	cfg.FairSharing.PreemptionStrategies = []kueueconfig.PreemptionStrategy{"Whatever"}
	if _, err := Options(cfg, features.Set{}); err == nil {
		t.Error("an unknown strategy must be an error")
	}
	for name, set := range map[string]func(*v1alpha1.QueueConfiguration, *metav1.Duration){
		"preemptAfter":       func(c *v1alpha1.QueueConfiguration, d *metav1.Duration) { c.PreemptAfter = d },
		"preemptionCooldown": func(c *v1alpha1.QueueConfiguration, d *metav1.Duration) { c.PreemptionCooldown = d },
	} {
		for _, d := range []time.Duration{-time.Second, 17 * time.Hour} {
			cfg := v1alpha1.NewQueueConfiguration()
			set(cfg, &metav1.Duration{Duration: d})
			if _, err := Options(cfg, features.Set{}); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s %s: %v", name, d, err)
			}
		}
	}
}
