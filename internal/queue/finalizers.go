package queue

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/elastic-ai/elastic/internal/inbox"
)

// inUseFinalizers gives objects that others need Kueue's finalizer, so that deleting them waits
// until they are no longer in use. It decides on the objects alone, so a new leader continues where
// the last one stopped.
type inUseFinalizers struct {
	inUse  func(client.Object) bool
	submit func(client.Object) // has the finalizer written
	// toWrite are objects that lack the finalizer, or were deleted and have it.
	toWrite map[inbox.Key]client.Object
	// sent is what a write was last sent for: the version to remove the finalizer from, or the UID
	// of the object to add it to, whatever its version.
	sent map[inbox.Key]string
}

func newInUseFinalizers(inUse func(client.Object) bool, submit func(client.Object)) *inUseFinalizers {
	return &inUseFinalizers{inUse: inUse, submit: submit, toWrite: map[inbox.Key]client.Object{}, sent: map[inbox.Key]string{}}
}

// hasInUseFinalizer says that the object is of a kind that others refer to.
func hasInUseFinalizer(obj client.Object) bool {
	switch obj.(type) {
	case *kueue.ClusterQueue, *kueue.ResourceFlavor, *kueue.AdmissionCheck, *kueue.Topology:
		return true
	}
	return false
}

// objectChanged handles an object that changed or was deleted.
func (f *inUseFinalizers) objectChanged(obj client.Object, deleted bool) {
	if !hasInUseFinalizer(obj) {
		return
	}
	key := inbox.KeyOf(obj)
	has := controllerutil.ContainsFinalizer(obj, kueue.ResourceInUseFinalizerName)
	deleting := obj.GetDeletionTimestamp() != nil
	if deleted || has != deleting {
		delete(f.toWrite, key)
		delete(f.sent, key)
		return
	}
	f.toWrite[key] = obj
}

// sync adds the finalizer where it is missing, although the webhook adds it to new queues and
// flavors, and removes it from deleted objects that are no longer in use. Removing is sent again
// for each newer version of the object.
func (f *inUseFinalizers) sync() {
	for key, obj := range f.toWrite {
		target := string(obj.GetUID())
		if obj.GetDeletionTimestamp() != nil {
			target = obj.GetResourceVersion()
		}
		if f.sent[key] == target || (obj.GetDeletionTimestamp() != nil && f.inUse(obj)) {
			continue
		}
		f.sent[key] = target
		f.submit(obj)
	}
}
