package webhooks

import (
	"cmp"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
)

// TestPodsAreGated: which pods are held back, whatever their authors write on them.
func TestPodsAreGated(t *testing.T) {
	queued := map[string]string{kinds.QueueNameLabel: "main"}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "in", Name: "job", UID: "1", Labels: queued}}
	replicas := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "3", Controller: ptr.To(true)}}
	for name, tc := range map[string]struct {
		pod        metav1.ObjectMeta
		everything bool // pods without a queue are managed too
		named      bool // pods are named among the kinds
		want       bool
	}{
		"names a queue":                        {pod: metav1.ObjectMeta{Labels: queued}, want: true},
		"says that it is managed already":      {pod: metav1.ObjectMeta{Labels: map[string]string{kinds.QueueNameLabel: "main", kinds.ManagedLabel: "true"}}, want: true},
		"says that it has a parent":            {pod: metav1.ObjectMeta{Labels: queued, Annotations: map[string]string{kinds.ParentAnnotation: "deployment"}}, want: true},
		"names none":                           {},
		"names none, every pod needs one":      {everything: true, want: true},
		"names none, pods are jobs":            {named: true},
		"names none where there is a default":  {pod: metav1.ObjectMeta{Namespace: "defaulted"}},
		"there, pods are jobs":                 {pod: metav1.ObjectMeta{Namespace: "defaulted"}, named: true, want: true},
		"of a ReplicaSet, every pod needs one": {pod: metav1.ObjectMeta{OwnerReferences: replicas}, everything: true, want: true},
		"of a queued job, every pod needs one": {
			pod:        metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}},
			everything: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job.DeepCopy(),
				&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "defaulted", Name: "default"}}).Build()
			inUse := &kinds.InUse{}
			inUse.Set(kinds.Table())
			h := &defaulter{validator: &validator{kinds: inUse, filter: &managed.Filter{
				Cached: reader, Direct: reader, Kinds: inUse, WithoutQueueName: tc.everything, Pods: tc.everything || tc.named, Namespaces: labels.Everything(),
			}}}
			tc.pod.Namespace, tc.pod.Name = cmp.Or(tc.pod.Namespace, "in"), "pod"
			patch := created(t, h, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: tc.pod})
			if got := strings.Contains(patch, kinds.AdmissionGate); got != tc.want {
				t.Fatalf("gated: %v, want %v (%s)", got, tc.want, patch)
			}
		})
	}
}
