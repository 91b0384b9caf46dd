package queue

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestFinalizersProtectWhatIsInUse(t *testing.T) {
	used := true
	var written []string
	k := newInUseFinalizers(func(client.Object) bool { return used }, func(obj client.Object) { written = append(written, obj.GetResourceVersion()) })
	expect := func(what string, want ...string) {
		t.Helper()
		if k.sync(); !slices.Equal(written, want) {
			t.Fatalf("%s: wrote versions %v, want %v", what, written, want)
		}
	}
	flavor := func(version string, finalizer, deleted bool) *kueue.ResourceFlavor {
		rf := named(&kueue.ResourceFlavor{}, "rf")
		rf.ResourceVersion, rf.UID = version, "uid"
		if finalizer {
			rf.Finalizers = []string{kueue.ResourceInUseFinalizerName}
		}
		if deleted {
			rf.DeletionTimestamp = ptr.To(metav1.Now())
		}
		return rf
	}
	k.objectChanged(flavor("1", false, false), false)
	expect("one without the finalizer gets it", "1")
	expect("once", "1")
	k.objectChanged(flavor("2", false, false), false)
	expect("which suits newer versions too", "1")
	k.objectChanged(flavor("3", true, false), false)
	expect("has it", "1")
	k.objectChanged(flavor("4", false, false), false)
	expect("somebody took it", "1", "4")
	k.objectChanged(flavor("5", true, false), false)
	k.objectChanged(flavor("6", true, true), false)
	expect("deleted but used", "1", "4")
	used = false
	expect("no longer used", "1", "4", "6")
	k.objectChanged(flavor("7", true, true), false)
	expect("it met a newer object", "1", "4", "6", "7")
	k.objectChanged(flavor("8", false, true), true)
	expect("gone", "1", "4", "6", "7")
	if len(k.toWrite)+len(k.sent) != 0 {
		t.Errorf("still stored: %v, %v", k.toWrite, k.sent)
	}
}
