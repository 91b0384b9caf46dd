package managed

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// An object is left to its owner only if it really has that owner: a name alone, or the UID of
// another object of that name, does not take it out of its queue.
func TestForgedOwnerIsNoOwner(t *testing.T) {
	inUse := &kinds.InUse{}
	inUse.Set(kinds.Table())
	parent := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "parent", UID: "real", Labels: map[string]string{kinds.QueueNameLabel: "main"}}}
	f := &Filter{Direct: fake.NewClientBuilder().WithObjects(parent).Build(), Kinds: inUse, Namespaces: labels.Everything(), WithoutQueueName: true}
	for uid, independent := range map[string]bool{"real": false, "forged": true, "": true} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "Job", Name: "parent", UID: types.UID(uid), Controller: ptr.To(true),
		}}}}
		got, err := f.IsIndependent(t.Context(), pod, "ns")
		if err != nil || got != independent {
			t.Errorf("owner with UID %q: independent %t, want %t (%v)", uid, got, independent, err)
		}
	}
}
