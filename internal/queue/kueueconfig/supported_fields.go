package kueueconfig

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// honoured marks a field that means the same here as in Kueue.
const honoured = ""

// fields says what is done with every field of Kueue's file. A reason stands for everything below
// the field as well, and counts only if the field is set to something other than Kueue's default.
var fields = map[string]string{
	"namespace": honoured,

	"webhook.port":    honoured,
	"webhook.host":    honoured,
	"webhook.certDir": honoured,

	"leaderElection.leaderElect":       honoured,
	"leaderElection.leaseDuration":     honoured,
	"leaderElection.renewDeadline":     honoured,
	"leaderElection.retryPeriod":       honoured,
	"leaderElection.resourceName":      honoured,
	"leaderElection.resourceNamespace": honoured,
	"leaderElection.resourceLock":      "only leases elect a leader; remove it",

	"metrics.bindAddress":                          honoured,
	"metrics.enableClusterQueueResources":          honoured,
	"metrics.localQueueMetrics.enable":             honoured,
	"metrics.localQueueMetrics.localQueueSelector": honoured,
	"metrics.customLabels":                         honoured,

	"health.healthProbeBindAddress": honoured,
	"health.readinessEndpointName":  honoured,
	"health.livenessEndpointName":   honoured,
	"pprofBindAddress":              honoured,

	"controller.groupKindConcurrency": honoured,
	"controller.cacheSyncTimeout":     honoured,

	"tls.minVersion":       honoured,
	"tls.cipherSuites":     honoured,
	"tls.curvePreferences": honoured,

	"manageJobsWithoutQueueName":   honoured,
	"managedJobsNamespaceSelector": honoured,

	"internalCertManagement.enable":             honoured,
	"internalCertManagement.webhookServiceName": honoured,
	"internalCertManagement.webhookSecretName":  honoured,

	"waitForPodsReady.enable":                               honoured, // v1beta1
	"waitForPodsReady.timeout":                              honoured,
	"waitForPodsReady.blockAdmission":                       honoured,
	"waitForPodsReady.recoveryTimeout":                      honoured,
	"waitForPodsReady.requeuingStrategy.timestamp":          honoured,
	"waitForPodsReady.requeuingStrategy.backoffLimitCount":  honoured,
	"waitForPodsReady.requeuingStrategy.backoffBaseSeconds": honoured,
	"waitForPodsReady.requeuingStrategy.backoffMaxSeconds":  honoured,

	"clientConnection.qps":   honoured,
	"clientConnection.burst": honoured,

	"integrations.frameworks":         honoured,
	"integrations.externalFrameworks": honoured,
	"integrations.labelKeysToCopy":    honoured,
	"integrations.podOptions":         "Kueue v0.19 ignores it; say it with managedJobsNamespaceSelector and remove it", // v1beta1
	"queueVisibility":                 "Kueue v0.19 ignores it; ask the visibility API and remove it",                   // v1beta1

	"multiKueue.gcInterval":                           honoured,
	"multiKueue.origin":                               honoured,
	"multiKueue.workerLostTimeout":                    honoured,
	"multiKueue.dispatcherName":                       honoured,
	"multiKueue.incrementalDispatcherConfig.stepSize": honoured, // v1beta2
	"multiKueue.externalFrameworks":                   honoured,
	"multiKueue.clusterProfile.accessProviders":       honoured, // v1beta2
	"multiKueue.clusterProfile.credentialsProviders":  honoured,

	"fairSharing.enable":               honoured, // v1beta1
	"fairSharing.preemptionStrategies": honoured,

	"admissionFairSharing.usageHalfLifeTime":     honoured,
	"admissionFairSharing.usageSamplingInterval": honoured,
	"admissionFairSharing.resourceWeights":       honoured,

	"resources.quotaCheckStrategy":      honoured,
	"resources.excludeResourcePrefixes": honoured,
	"resources.transformations":         honoured,
	"resources.deviceClassMappings":     honoured,

	"featureGates": honoured,

	"objectRetentionPolicies.workloads.afterFinished":           honoured,
	"objectRetentionPolicies.workloads.afterDeactivatedByKueue": honoured,

	"visibilityServer.bindAddress": honoured,
	"visibilityServer.bindPort":    honoured,
}

// reasonFor is why a field is not honoured, or the field it is part of.
func reasonFor(path string) (reason string, known bool) {
	if reason, known = fields[path]; known {
		return reason, true
	}
	for end := strings.LastIndex(path, "."); end > 0; end = strings.LastIndex(path[:end], ".") {
		if reason = fields[path[:end]]; reason != honoured {
			return reason, true
		}
	}
	return "", false
}

// check names every field that is set to something that is not supported.
func check(given, defaults any) error {
	var problems []error
	visit(reflect.ValueOf(given), reflect.ValueOf(defaults), "", func(path string, given, def reflect.Value) {
		if given.IsZero() || def.IsValid() && reflect.DeepEqual(given.Interface(), def.Interface()) {
			return
		}
		switch reason, known := reasonFor(path); {
		case !known:
			problems = append(problems, fmt.Errorf("%s: this version of elastic-queue does not know it; remove it", path))
		case reason != honoured:
			problems = append(problems, fmt.Errorf("%s: %s", path, reason))
		}
	})
	return errors.Join(problems...)
}

// visit calls f for every value a person can write, with its path and Kueue's default. Nothing is
// below a struct that is not set.
func visit(given, def reflect.Value, path string, f func(path string, given, def reflect.Value)) {
	given, def = indirect(given), indirect(def)
	if !given.IsValid() {
		return
	}
	if isLeaf(given.Type()) {
		f(path, given, def)
		return
	}
	for i := range given.NumField() {
		field := given.Type().Field(i)
		if field.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue
		}
		below := path
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			below = strings.TrimPrefix(path+"."+name, ".")
		}
		var defaultValue reflect.Value
		if def.IsValid() {
			defaultValue = def.Field(i)
		}
		visit(given.Field(i), defaultValue, below, f)
	}
}

// indirect follows a pointer; the zero Value for nil.
func indirect(v reflect.Value) reflect.Value {
	if v.IsValid() && v.Kind() == reflect.Pointer {
		return v.Elem()
	}
	return v
}

// isLeaf says that a field is written as one value. Lists are: every list of structs that is
// honoured has a test of its own.
func isLeaf(t reflect.Type) bool {
	return t.Kind() != reflect.Struct ||
		t == reflect.TypeFor[metav1.Duration]() || t == reflect.TypeFor[metav1.LabelSelector]()
}
