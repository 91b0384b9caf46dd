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
type keeper struct {
	used   func(client.Object) bool // somebody needs the object
	submit func(client.Object)      // have its finalizer written
	// open are those that lack the finalizer, or were deleted and have it.
	open map[inbox.Key]client.Object
	// tried is what a write was last sent for: the version that the finalizer is to
	// be taken from, or the object that is to have it, whatever its version.
	tried map[inbox.Key]string
}

func newKeeper(used func(client.Object) bool, submit func(client.Object)) *keeper {
	return &keeper{used: used, submit: submit, open: map[inbox.Key]client.Object{}, tried: map[inbox.Key]string{}}
}

// keepable are the kinds that others need.
func keepable(obj client.Object) bool {
	switch obj.(type) {
	case *kueue.ClusterQueue, *kueue.ResourceFlavor, *kueue.AdmissionCheck, *kueue.Topology:
		return true
	}
	return false
}

// saw takes in an object that changed or went.
func (k *keeper) saw(obj client.Object, gone bool) {
	if !keepable(obj) {
		return
	}
	key := inbox.KeyOf(obj)
	held := controllerutil.ContainsFinalizer(obj, kueue.ResourceInUseFinalizerName)
	going := obj.GetDeletionTimestamp() != nil
	if gone || held != going {
		delete(k.open, key)
		delete(k.tried, key)
		return
	}
	k.open[key] = obj
}

// settle gives the finalizer to those that lack it, though the webhook gives it
// to new queues and flavors, and takes it from those nobody needs any more. One
// that is to be taken from a newer object than we knew is sent again for that.
func (k *keeper) settle() {
	for key, obj := range k.open {
		target := string(obj.GetUID())
		if obj.GetDeletionTimestamp() != nil {
			target = obj.GetResourceVersion()
		}
		if k.tried[key] == target || (obj.GetDeletionTimestamp() != nil && k.used(obj)) {
			continue
		}
		k.tried[key] = target
		k.submit(obj)
	}
}
