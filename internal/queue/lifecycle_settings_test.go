package queue

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/features"
)

func TestLifecycleSettingsFollowTheConfiguration(t *testing.T) {
	cfg := v1alpha1.NewQueueConfiguration()
	if settings := LifecycleSettings(cfg, features.Set{}); settings.PodsReady != nil || settings.RetainFinished != nil {
		t.Errorf("without a word nothing is watched or deleted: %+v", settings)
	}
	cfg.WaitForPodsReady = &kueueconfig.WaitForPodsReady{
		RequeuingStrategy: &kueueconfig.RequeuingStrategy{BackoffBaseSeconds: ptr.To(int32(5)), BackoffLimitCount: ptr.To(int32(2))},
	}
	cfg.ObjectRetentionPolicies = &kueueconfig.ObjectRetentionPolicies{
		Workloads: &kueueconfig.WorkloadRetentionPolicy{AfterFinished: &metav1.Duration{Duration: time.Minute}},
	}
	settings := LifecycleSettings(cfg, features.Set{})
	if w := settings.PodsReady; w == nil || w.Timeout != 5*time.Minute || w.BackoffBase != 5*time.Second || w.BackoffMax != time.Hour || *w.BackoffLimit != 2 {
		t.Errorf("pods ready %+v", w)
	}
	if settings.RetainFinished == nil || *settings.RetainFinished != time.Minute || settings.RetainDeactivated != nil {
		t.Errorf("retention %+v", settings)
	}
}
