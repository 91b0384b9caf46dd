package webhooks

import (
	"cmp"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
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

// The groups of a LeaderWorkerSet have the names that Kueue gives them: in a cluster that another one sends it to, those of
// the original, by which a manager of either kind and a worker of either kind find the same workload.
func TestGroupsOfALeaderWorkerSet(t *testing.T) {
	const here, there, former = "leaderworkerset-serve-1-3a1ee", "leaderworkerset-serve-1-b2153", "leaderworkerset-serve-1-0b7a6"
	group := func(owner string) *kueue.Workload {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "in", Name: former, Annotations: map[string]string{kinds.IsGroupAnnotation: "true"}}}
		if owner != "" {
			wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "leaderworkerset.x-k8s.io/v1", Kind: "LeaderWorkerSet", Name: "serve", UID: types.UID(owner), Controller: ptr.To(true)}}
		}
		return wl
	}
	sent := map[string]string{kueue.MultiKueueOriginUIDAnnotation: "there"}
	for name, tc := range map[string]struct {
		labels, annotations map[string]string // of the set
		none                bool              // there is no such set
		workload            *kueue.Workload   // of before
		want                string
	}{
		"of this cluster":                     {want: here},
		"sent by another":                     {labels: map[string]string{kueue.MultiKueueOriginLabel: "manager"}, annotations: sent, want: there},
		"says so, and was not":                {annotations: sent, want: here},
		"with a workload of before":           {workload: group("here"), want: former},
		"with a copy of before":               {labels: map[string]string{kueue.MultiKueueOriginLabel: "manager"}, annotations: sent, workload: group(""), want: former},
		"with the workload of a deleted set":  {workload: group("gone"), want: here},
		"with the group of a set that is not": {none: true, want: former},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			build := fake.NewClientBuilder().WithScheme(scheme)
			if !tc.none {
				set := &unstructured.Unstructured{}
				set.SetGroupVersionKind(schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"})
				set.SetNamespace("in")
				set.SetName("serve")
				set.SetUID("here")
				set.SetLabels(tc.labels)
				set.SetAnnotations(tc.annotations)
				build.WithObjects(set)
			}
			if tc.workload != nil {
				build.WithObjects(tc.workload)
			}
			reader := build.Build()
			inUse := &kinds.InUse{}
			inUse.Set(kinds.Table())
			h := &defaulter{validator: &validator{kinds: inUse, filter: &managed.Filter{Cached: reader, Direct: reader, Kinds: inUse, Namespaces: labels.Everything()}}}
			patch := created(t, h, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{
				Namespace: "in", Name: "serve-1-0", Annotations: map[string]string{kinds.ParentAnnotation: "leaderworkerset.x-k8s.io/leaderworkerset"},
				Labels: map[string]string{
					kinds.QueueNameLabel: "main", "leaderworkerset.sigs.k8s.io/name": "serve",
					"leaderworkerset.sigs.k8s.io/group-index": "1", "leaderworkerset.sigs.k8s.io/worker-index": "0",
				},
			}})
			if !strings.Contains(patch, `"`+tc.want+`"`) {
				t.Errorf("its group is not %s: %s", tc.want, patch)
			}
		})
	}
}

// Of a StatefulSet with a least and a most number of pods, the least are a group, and each pod beyond is queued by itself as
// one of its extras. The range counts as it stands on the object, and for its pods as it was when they were made.
func TestPodsOfARangedStatefulSet(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).Build()
	inUse := &kinds.InUse{}
	inUse.Set(kinds.Table())
	h := &defaulter{validator: &validator{kinds: inUse, filter: &managed.Filter{Cached: reader, Direct: reader, Kinds: inUse, Namespaces: labels.Everything()}}}
	const set = `{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"namespace": "in", "name": "serve", "labels": {"kueue.x-k8s.io/queue-name": "main"}, "annotations": {ANNOTATIONS}},
		"spec": {"replicas": 8, "template": {"metadata": {"annotations": {"elasticai.io/pods": "1-9", "a": "b"}}, "spec": {"containers": [{"name": "c"}]}}}}`
	for annotations, want := range map[string]string{`"elasticai.io/pods": "2-8"`: `"2-8"`, "": "remove"} {
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON([]byte(strings.Replace(set, "ANNOTATIONS", annotations, 1))); err != nil {
			t.Fatal(err)
		}
		if patch := created(t, h, obj); !strings.Contains(patch, want) || !strings.Contains(patch, "elasticai.io~1pods") {
			t.Errorf("with %q its template becomes: %s", annotations, patch)
		}
	}
	pod := func(index, pods string) string {
		return created(t, h, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{
			Namespace: "in", Name: "serve-" + index, Labels: map[string]string{kinds.QueueNameLabel: "main", "apps.kubernetes.io/pod-index": index},
			Annotations:     map[string]string{kinds.ParentAnnotation: "statefulset", v1alpha1.PodsAnnotation: pods},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "serve", UID: "1", Controller: ptr.To(true)}},
		}})
	}
	for index, extra := range map[string]bool{"0": false, "1": false, "2": true, "7": true, "x": false} {
		patch := pod(index, "2-8")
		if got := strings.Contains(patch, "elasticai.io~1extra-of"); got != extra || strings.Contains(patch, kinds.GroupNameLabel[strings.Index(kinds.GroupNameLabel, "/")+1:]) == extra {
			t.Errorf("pod %s: extra %t, want %t: %s", index, got, extra, patch)
		}
	}
	if patch := pod("7", "many"); strings.Contains(patch, "extra-of") {
		t.Errorf("a range that is none: %s", patch)
	}
}
