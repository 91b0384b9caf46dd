package queue

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/elastic-ai/elastic/internal/inbox"
)

// keeper keeps objects that are in use from going: a finalizer holds them until
// nobody needs them. It decides on what is there alone, so a new leader goes on
// where the last one stopped.
type inUseFinalizers struct {
	inUse  func(client.Object) bool // somebody needs the object
	submit func(client.Object)      // have its finalizer written
	// open are those that lack the finalizer, or were deleted and have it.
	toWrite map[inbox.Key]client.Object
	// tried is what a write was last sent for: the version that the finalizer is to
	// be taken from, or the object that is to have it, whatever its version.
	sent map[inbox.Key]string
}

func newInUseFinalizers(used func(client.Object) bool, submit func(client.Object)) *inUseFinalizers {
	return &inUseFinalizers{inUse: used, submit: submit, toWrite: map[inbox.Key]client.Object{}, sent: map[inbox.Key]string{}}
}

// keepable are the kinds that others need.
func hasInUseFinalizer(obj client.Object) bool {
	switch obj.(type) {
	case *kueue.ClusterQueue, *kueue.ResourceFlavor, *kueue.AdmissionCheck, *kueue.Topology:
		return true
	}
	return false
}

// saw takes in an object that changed or went.
func (k *inUseFinalizers) objectChanged(obj client.Object, gone bool) {
	if !hasInUseFinalizer(obj) {
		return
	}
	key := inbox.KeyOf(obj)
	held := controllerutil.ContainsFinalizer(obj, kueue.ResourceInUseFinalizerName)
	going := obj.GetDeletionTimestamp() != nil
	if gone || held != going {
		delete(k.toWrite, key)
		delete(k.sent, key)
		return
	}
	k.toWrite[key] = obj
}

// settle gives the finalizer to those that lack it, though the webhook gives it
// to new queues and flavors, and takes it from those nobody needs any more. One
// that is to be taken from a newer object than we knew is sent again for that.
func (k *inUseFinalizers) sync() {
	for key, obj := range k.toWrite {
		target := string(obj.GetUID())
		if obj.GetDeletionTimestamp() != nil {
			target = obj.GetResourceVersion()
		}
		if k.sent[key] == target || (obj.GetDeletionTimestamp() != nil && k.inUse(obj)) {
			continue
		}
		k.sent[key] = target
		k.submit(obj)
	}
}
