package queue

import (
	"context"
	"sync"
)

// pool does work in a bounded number of goroutines. Submitting never blocks.
type pool[T any] struct {
	mu       sync.Mutex
	notEmpty *sync.Cond
	waiting  []T
	stopped  bool
}

func newPool[T any]() *pool[T] {
	p := &pool[T]{}
	p.notEmpty = sync.NewCond(&p.mu)
	return p
}

// run works in n goroutines until ctx ends and they are done. Work that still waits then is
// dropped.
func (p *pool[T]) run(ctx context.Context, n int, work func(context.Context, T)) {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		p.stopped = true
		p.mu.Unlock()
		p.notEmpty.Broadcast()
	})
	defer stop()
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			for {
				item, ok := p.next()
				if !ok {
					return
				}
				work(ctx, item)
			}
		})
	}
	group.Wait()
}

func (p *pool[T]) submit(item T) {
	p.mu.Lock()
	p.waiting = append(p.waiting, item)
	p.mu.Unlock()
	p.notEmpty.Signal()
}

func (p *pool[T]) next() (item T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) == 0 && !p.stopped {
		p.notEmpty.Wait()
	}
	if p.stopped {
		return item, false
	}
	item = p.waiting[0]
	p.waiting = p.waiting[1:]
	return item, true
}
