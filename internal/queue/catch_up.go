package queue

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A new leader's cache may be behind: its lists come from any API server's cache, and its watches may
// have yet to deliver what the last leader wrote. Quota that is reserved already would be given out
// again. So the leader reads the workloads' versions from the API server itself before it decides, and
// those workloads that the cache has not seen yet.

const (
	// catchUpPage is how many workloads are read at a time.
	catchUpPage = 500
	// catchUpPause is how long to wait after an error.
	catchUpPause = time.Second
)

// catchUp takes in the workloads that are newer than the cache, and returns false if ctx ended before.
// They come before all messages: what the watches have delivered since may be newer still.
func (s *Shell) catchUp(ctx context.Context) bool {
	for {
		newer, err := s.readNewer(ctx)
		if err == nil {
			err = s.readAccounts(ctx)
		}
		if err == nil {
			for _, wl := range newer {
				s.handleSafely(message{object: wl})
			}
			return true
		}
		if ctx.Err() == nil {
			s.options.Log.Error(err, "reading all workloads and accounts failed, trying again; nothing is decided before")
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(catchUpPause):
		}
	}
}

func (s *Shell) readNewer(ctx context.Context) (newer []*kueue.Workload, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("WorkloadList"))
	for {
		if err := s.options.Direct.List(ctx, list, client.Limit(catchUpPage), client.Continue(list.Continue)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			wl, err := s.readIfNewer(ctx, &list.Items[i])
			if err != nil {
				return nil, err
			}
			if wl != nil {
				newer = append(newer, wl)
			}
		}
		if list.Continue == "" {
			return newer, nil
		}
	}
}

// readIfNewer reads a workload, or returns nil if the cache has it as it is.
func (s *Shell) readIfNewer(ctx context.Context, is *metav1.PartialObjectMetadata) (*kueue.Workload, error) {
	key, wl := client.ObjectKeyFromObject(is), &kueue.Workload{}
	err := s.cache.Get(ctx, key, wl, client.UnsafeDisableDeepCopy)
	if err == nil && wl.ResourceVersion == is.ResourceVersion {
		return nil, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	wl = &kueue.Workload{}
	err = s.options.Direct.Get(ctx, key, wl)
	if apierrors.IsNotFound(err) {
		return nil, nil // deleted meanwhile
	}
	return wl, err
}
