package queue

import (
	"context"
	"reflect"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// message is one thing for the loop to look at: an object that changed or went,
// the result of a write (of a workload's or a queue's status), or a question.
type message struct {
	object client.Object
	gone   bool
	result *writeResult
	status *statusResult
	ask    func()
}

type messageKey struct {
	kind reflect.Type
	name client.ObjectKey
}

func keyOf(obj client.Object) messageKey {
	return messageKey{reflect.TypeOf(obj), client.ObjectKeyFromObject(obj)}
}

// inbox collects messages until the loop takes them. Of several changes to one
// object only the newest is kept, in the place of the first.
type inbox struct {
	mu     sync.Mutex
	order  []message
	index  map[messageKey]int
	signal chan struct{}
}

func newInbox() *inbox {
	return &inbox{index: map[messageKey]int{}, signal: make(chan struct{}, 1)}
}

func (b *inbox) put(m message) {
	b.mu.Lock()
	if m.object == nil {
		b.order = append(b.order, m)
	} else {
		key := keyOf(m.object)
		if i, waiting := b.index[key]; waiting {
			b.order[i] = m
		} else {
			b.index[key] = len(b.order)
			b.order = append(b.order, m)
		}
	}
	b.mu.Unlock()
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

// take waits for messages, or until a time (zero: forever), or the end of ctx.
func (b *inbox) take(ctx context.Context, until time.Time) ([]message, error) {
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

// handler feeds an informer's events into the inbox.
func (b *inbox) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { b.put(message{object: obj.(client.Object)}) },
		UpdateFunc: func(_, obj any) { b.put(message{object: obj.(client.Object)}) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			b.put(message{object: obj.(client.Object), gone: true})
		},
	}
}
