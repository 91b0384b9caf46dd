package controlplane

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	cachetest "k8s.io/client-go/tools/cache/testing"
)

// Kubernetes' controllers hear of deleted objects through client-go's typed handlers, a few lines of which tools/compiler.sh
// edits. What they are told is the same with and without that.
func TestTypedHandlersHearOfDeletedObjects(t *testing.T) {
	type deleted = cache.DeletedObject[*corev1.Pod]
	said := make(chan string, 3)
	funcs := func(name string) cache.TypedResourceEventHandlerFuncs[*corev1.Pod] {
		return cache.TypedResourceEventHandlerFuncs[*corev1.Pod]{DeleteFunc: func(d deleted) {
			said <- name + " " + d.GetKey() + " " + d.OptionalObj.Labels["version"]
		}}
	}
	for name, handler := range map[string]cache.TypedResourceEventHandler[*corev1.Pod]{
		"plain":    funcs("plain"),
		"detailed": cache.TypedResourceEventHandlerDetailedFuncs[*corev1.Pod]{DeleteFunc: funcs("detailed").DeleteFunc},
		"filtering": cache.TypedFilteringResourceEventHandler[*corev1.Pod]{
			FilterFunc: func(pod *corev1.Pod) bool { return pod.Labels["version"] == "old" },
			Handler:    funcs("filtering"),
		},
		"filtering again": cache.TypedFilteringResourceEventHandler[*corev1.Pod]{
			FilterFunc: func(*corev1.Pod) bool { return true },
			Handler:    funcs("filtering again"),
		},
	} {
		source := cachetest.NewFakeControllerSource()
		informer := cache.NewTypedSharedIndexInformer[*corev1.Pod](cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, nil))
		registration, err := informer.AddTypedEventHandler(handler)
		if err != nil {
			t.Fatal(err)
		}
		source.Add(pod("old"))
		go informer.RunWithContext(t.Context())
		if !cache.WaitForCacheSync(t.Context().Done(), registration.HasSynced) {
			t.Fatal("the informer does not sync")
		}
		source.Modify(pod("new"))
		source.Delete(pod("new"))
		// To a filter an object is deleted when it does not match any more.
		want := name + " default/p new"
		if name == "filtering" {
			want = name + " default/p old"
		}
		if got := <-said; got != want {
			t.Errorf("the handler was told %q, not %q", got, want)
		}
	}
}

func pod(version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: map[string]string{"version": version}}}
}
