package gpu

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// message is an object that changed or went.
type message struct {
	object client.Object
	gone   bool
}

type messageKey struct {
	kind reflect.Type
	name client.ObjectKey
}

// inbox collects what the loop has to look at. Of several changes to one object only the newest is
// kept; a question is answered after all changes that were there before it.
type inbox struct {
	mu        sync.Mutex
	messages  []message
	index     map[messageKey]int
	questions []func()
	signal    chan struct{}
}

func newInbox() *inbox {
	return &inbox{index: map[messageKey]int{}, signal: make(chan struct{}, 1)}
}

func (b *inbox) put(m message) {
	key := messageKey{reflect.TypeOf(m.object), client.ObjectKeyFromObject(m.object)}
	b.mu.Lock()
	if i, waiting := b.index[key]; waiting {
		b.messages[i] = m
	} else {
		b.index[key] = len(b.messages)
		b.messages = append(b.messages, m)
	}
	b.mu.Unlock()
	b.wake()
}

func (b *inbox) ask(question func()) {
	b.mu.Lock()
	b.questions = append(b.questions, question)
	b.mu.Unlock()
	b.wake()
}

func (b *inbox) wake() {
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

// take waits for something to do. Messages come in the order in which they make sense: nodes and
// their cards, what holds cards, pods.
func (b *inbox) take(ctx context.Context) ([]message, []func(), error) {
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-b.signal:
	}
	b.mu.Lock()
	messages, questions := b.messages, b.questions
	b.messages, b.questions = nil, nil
	clear(b.index)
	b.mu.Unlock()
	inOrder(messages)
	return messages, questions, nil
}

func inOrder(messages []message) {
	slices.SortStableFunc(messages, func(x, y message) int { return cmp.Compare(rank(x.object), rank(y.object)) })
}

func rank(object client.Object) int {
	switch o := object.(type) {
	case *egpu.GPU:
		return 0 // before its node, which then is described once
	case *corev1.Node:
		return 1
	case *egpu.ElasticGPU:
		return 2
	case *corev1.Pod:
		if o.Annotations[egpu.Assumed] == "true" {
			return 3
		}
	}
	return 4 // pods that do not say which cards they have get what the others leave
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
