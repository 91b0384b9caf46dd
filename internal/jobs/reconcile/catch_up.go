package reconcile

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A new leader's cache may be behind what the last one wrote: it would start a job whose workload has
// released its quota since. So nothing is reconciled until the cache has the workloads as the API server
// has them when this process begins to lead.

const (
	catchUpPage  = 500                    // workloads read at a time
	catchUpPause = 100 * time.Millisecond // between two looks at the cache
)

type catchUp struct {
	done   atomic.Bool
	mu     sync.Mutex
	listed bool
	behind []metav1.PartialObjectMetadata // workloads that the cache has older, or not at all
	// listedAt is the version of the list. What the cache has from before it may be gone.
	listedAt string
}

// caughtUp says whether the cache is new enough to decide on.
func (c *controller) caughtUp(ctx context.Context) (bool, error) {
	u := &c.catchUp
	if u.done.Load() {
		return true, nil
	}
	if !u.mu.TryLock() {
		return false, nil // another reconciliation is looking
	}
	defer u.mu.Unlock()
	if !u.listed {
		if err := c.listBehind(ctx); err != nil {
			return false, err
		}
		u.listed = true
	}
	var failed error
	u.behind = slices.DeleteFunc(u.behind, func(wl metav1.PartialObjectMetadata) bool {
		seen, err := c.seen(ctx, &wl)
		if err != nil {
			failed = err
		}
		return seen
	})
	u.done.Store(len(u.behind) == 0)
	return len(u.behind) == 0, failed
}

func (c *controller) listBehind(ctx context.Context) error {
	c.catchUp.behind = nil
	exist := map[types.UID]bool{}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("WorkloadList"))
	for {
		if err := c.filter.Direct.List(ctx, list, client.Limit(catchUpPage), client.Continue(list.Continue)); err != nil {
			return err
		}
		for i := range list.Items {
			exist[list.Items[i].UID] = true
			has := &kueue.Workload{}
			err := c.client.Get(ctx, client.ObjectKeyFromObject(&list.Items[i]), has, client.UnsafeDisableDeepCopy)
			if err != nil || !notOlder(has.ResourceVersion, list.Items[i].ResourceVersion) {
				c.catchUp.behind = append(c.catchUp.behind, list.Items[i])
			}
		}
		c.catchUp.listedAt = list.ResourceVersion
		if list.Continue == "" {
			break
		}
	}
	cached := &kueue.WorkloadList{}
	if err := c.client.List(ctx, cached, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range cached.Items {
		if wl := &cached.Items[i]; !exist[wl.UID] {
			gone := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: wl.Namespace, Name: wl.Name, UID: wl.UID}}
			c.catchUp.behind = append(c.catchUp.behind, gone)
		}
	}
	return nil
}

// seen: the cache has a workload at least as new, or has seen its deletion. One without a version was not
// listed: it was deleted, or came after the list.
func (c *controller) seen(ctx context.Context, wl *metav1.PartialObjectMetadata) (bool, error) {
	cached := &kueue.Workload{}
	err := c.client.Get(ctx, client.ObjectKeyFromObject(wl), cached, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	missing, listed := err != nil, wl.ResourceVersion != ""
	switch {
	case listed && !missing:
		return notOlder(cached.ResourceVersion, wl.ResourceVersion), nil
	case !listed && (missing || cached.UID != wl.UID):
		return true, nil
	}
	gone, err := c.isGone(ctx, wl)
	return err == nil && gone == listed, err
}

// isGone asks the API server.
func (c *controller) isGone(ctx context.Context, wl client.Object) (bool, error) {
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	err := c.filter.Direct.Get(ctx, client.ObjectKeyFromObject(wl), is)
	return err != nil || is.UID != wl.GetUID(), client.IgnoreNotFound(err)
}

// goneBefore: a workload was created and deleted before this process began to lead, and the watch, which is
// late, has delivered only its creation yet.
func (c *controller) goneBefore(ctx context.Context, wl *kueue.Workload) (bool, error) {
	if at := c.catchUp.listedAt; at == "" || !notOlder(at, wl.ResourceVersion) {
		return false, nil
	}
	return c.isGone(ctx, wl)
}

// notOlder compares resource versions, which are increasing numbers.
func notOlder(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX != nil || errY != nil || x >= y
}
