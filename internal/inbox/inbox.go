package inbox

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Key names an object of any kind.
type Key struct {
	kind reflect.Type
	name client.ObjectKey
}

// KeyOf an object.
func KeyOf(object client.Object) Key {
	return Key{reflect.TypeOf(object), client.ObjectKeyFromObject(object)}
}

// Box collects messages until the loop takes them. Of several about one object it has only the
// newest, in the position of the first.
type Box[M any] struct {
	about func(M) client.Object

	mu     sync.Mutex
	order  []M
	index  map[Key]int
	signal chan struct{}
}

// New box. About says which object a message is about; nil: none.
func New[M any](about func(M) client.Object) *Box[M] {
	return &Box[M]{about: about, index: map[Key]int{}, signal: make(chan struct{}, 1)}
}

// Put a message in.
func (b *Box[M]) Put(m M) {
	b.mu.Lock()
	b.put(m)
	b.mu.Unlock()
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

func (b *Box[M]) put(m M) {
	if object := b.about(m); object != nil {
		key := KeyOf(object)
		if i, waiting := b.index[key]; waiting {
			b.order[i] = m
			return
		}
		b.index[key] = len(b.order)
	}
	b.order = append(b.order, m)
}

// Earlier of two times until which to wait, where zero means forever.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// Take waits for messages, or until a time (zero: forever), or the end of ctx.
func (b *Box[M]) Take(ctx context.Context, until time.Time) ([]M, error) {
	var timeout <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timeout:
	case <-b.signal:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.order
	b.order = nil
	clear(b.index)
	return taken, nil
}

// Watch puts in the objects of some kinds that change or are deleted. It returns true when the
// initial lists are in the box, false if ctx ended before.
func (b *Box[M]) Watch(ctx context.Context, informers cache.Informers, message func(object client.Object, deleted bool) M, kinds ...client.Object) (bool, error) {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { b.Put(message(object.(client.Object), false)) },
		UpdateFunc: func(_, object any) { b.Put(message(object.(client.Object), false)) },
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			b.Put(message(object.(client.Object), true))
		},
	}
	var synced []toolscache.InformerSynced
	for _, kind := range kinds {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false)) // they come side by side
		if err != nil {
			return false, fmt.Errorf("watching %T: %w", kind, err)
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return false, fmt.Errorf("watching %T: %w", kind, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	return toolscache.WaitForCacheSync(ctx.Done(), synced...), nil
}
