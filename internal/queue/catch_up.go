package queue

import (
	"context"
	"slices"
	"time"

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
	// catchUpLook is how long to wait between looks at the cache, and catchUpLooks how many of them there are.
	catchUpLook  = 10 * time.Millisecond
	catchUpLooks = 100
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

// readNewer lists what there is, and takes what the cache did not have from the cache when it comes there, which takes
// milliseconds. A busy cluster has hundreds of them, and to read each would take seconds at the client's limit.
func (s *Shell) readNewer(ctx context.Context) (newer []*kueue.Workload, err error) {
	behind, err := s.listBehind(ctx)
	for looks := 0; err == nil && looks < catchUpLooks && len(behind) > 0; looks++ {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(catchUpLook):
		}
		behind = slices.DeleteFunc(behind, func(is metav1.PartialObjectMetadata) bool {
			wl := s.cachedAsOf(ctx, &is)
			if wl != nil {
				newer = append(newer, wl.DeepCopy())
			}
			return wl != nil
		})
	}
	for i := range behind {
		wl := &kueue.Workload{}
		err := s.options.Direct.Get(ctx, client.ObjectKeyFromObject(&behind[i]), wl)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil { // otherwise it was deleted meanwhile
			newer = append(newer, wl)
		}
	}
	return newer, err
}

// listBehind lists the workloads that the cache does not have as they are; one that it has newer may not be in the inbox yet.
func (s *Shell) listBehind(ctx context.Context) (behind []metav1.PartialObjectMetadata, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("WorkloadList"))
	for {
		if err := s.options.Direct.List(ctx, list, client.Limit(catchUpPage), client.Continue(list.Continue)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if wl := s.cachedAsOf(ctx, &list.Items[i]); wl == nil || wl.ResourceVersion != list.Items[i].ResourceVersion {
				behind = append(behind, list.Items[i])
			}
		}
		if list.Continue == "" {
			return behind, nil
		}
	}
}

// cachedAsOf is a workload as the cache has it, if that is no older than it was when listed.
func (s *Shell) cachedAsOf(ctx context.Context, is *metav1.PartialObjectMetadata) *kueue.Workload {
	wl := &kueue.Workload{}
	err := s.cache.Get(ctx, client.ObjectKeyFromObject(is), wl, client.UnsafeDisableDeepCopy)
	if err != nil || newerVersion(is.ResourceVersion, wl.ResourceVersion) {
		return nil
	}
	return wl
}
