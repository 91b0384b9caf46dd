package podgroups

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// With Kueue's FastQuotaReleaseInPodIntegration the quota of pods that are being deleted is not waited for.
func TestFastRelease(t *testing.T) {
	defer kinds.SetRules(kinds.Rules{})
	now := time.Unix(100, 0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now.Add(time.Minute)}}, Spec: corev1.PodSpec{NodeName: "n"}}
	for fast, want := range map[bool]bool{false: true, true: false} {
		kinds.SetRules(kinds.Rules{FastRelease: fast})
		if active, err := (&Group{Pods: []*corev1.Pod{pod}, Now: now}).IsActive(); err != nil || active != want {
			t.Errorf("fast %t: active %t, %v", fast, active, err)
		}
	}
}
