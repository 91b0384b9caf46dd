package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Fence ends a leader's writes before its lease ends. A process that was stopped, swapped out or cut off
// does not know that another one leads by now: what it had decided must not be written any more.
//
// From some time before the end of the lease, as it was last renewed, every request that changes something
// is refused, and those sent before must have been carried out by then. A process that never led is not
// fenced: it has decided nothing.
type Fence struct {
	now func() reading

	mu      sync.Mutex
	lease   time.Duration // 0: this process never led
	renewed reading
	lost    error         // for good: others may have led since
	writes  int           // under way
	idle    chan struct{} // closed when the last of them ends; nil: nobody waits for that
	unsure  time.Time     // until then a write without an answer may still be carried out
}

// margin of a lease in which nothing is written any more, as a fraction: clocks do not run alike, and the
// API server takes a moment to end a request whose time is over.
const margin = 5

// reading of both clocks. The monotonic one may stand still while the host is suspended, and the wall
// clock may be set back: the one that went further counts.
type reading struct {
	monotonic time.Duration
	wall      time.Time
}

func (r reading) since(earlier reading) time.Duration {
	return max(r.monotonic-earlier.monotonic, r.wall.Sub(earlier.wall))
}

// NewFence without a lease.
func NewFence() *Fence {
	start := time.Now()
	return &Fence{now: func() reading {
		now := time.Now()
		return reading{monotonic: now.Sub(start), wall: now.Round(0)}
	}}
}

// Deadline is when a write that begins now must have been carried out; zero for a process that never led.
// It is an error where it may not begin any more.
func (f *Fence) Deadline() (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deadline()
}

func (f *Fence) deadline() (time.Time, error) {
	switch {
	case f.lost != nil:
		return time.Time{}, fmt.Errorf("this replica does not lead any more and writes nothing: %w", f.lost)
	case f.lease == 0:
		return time.Time{}, nil
	}
	held := f.now().since(f.renewed)
	left := f.lease - f.lease/margin - held
	if left < time.Millisecond {
		return time.Time{}, fmt.Errorf("the lease of %s was last renewed %s ago: another replica may lead, and this one writes nothing", f.lease, held.Round(time.Millisecond))
	}
	return time.Now().Add(left), nil
}

// renew the lease by a request that began at some time: nobody can have seen it earlier.
func (f *Fence) renew(began reading, lease time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed, f.lease = began, lease
}

// lose the lease for good, where there was one.
func (f *Fence) lose(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lease > 0 && f.lost == nil {
		f.lost = why
	}
}

// isLost is why the lease was lost, or nil.
func (f *Fence) isLost() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// begin a write.
func (f *Fence) begin() (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	deadline, err := f.deadline()
	if err == nil {
		f.writes++
	}
	return deadline, err
}

// end a write. Without an answer nobody knows whether the API server still carries it out.
func (f *Fence) end(answered bool, deadline time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !answered && deadline.After(f.unsure) {
		f.unsure = deadline
	}
	if f.writes--; f.writes == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

var (
	errGivenUp = errors.New("it gave up its lease")
	errUnsure  = errors.New("the lease is left to run out: a write had no answer, and may still be carried out")
)

// giveUp has no write begin any more, and waits for those under way. It fails where another replica must
// not lead at once.
func (f *Fence) giveUp(ctx context.Context) error {
	f.lose(errGivenUp)
	f.mu.Lock()
	var idle chan struct{}
	if f.writes > 0 {
		if f.idle == nil {
			f.idle = make(chan struct{})
		}
		idle = f.idle
	}
	f.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("the lease is left to run out: writes are still under way: %w", ctx.Err())
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().Before(f.unsure) {
		return errUnsure
	}
	return nil
}

// Transport fences requests. It is a wrapper as rest.Config has them.
func (f *Fence) Transport(next http.RoundTripper) http.RoundTripper { return &fencedTransport{f, next} }

type fencedTransport struct {
	fence *Fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return t.next.RoundTrip(r)
	}
	deadline, err := t.fence.begin()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	cancel := func() {}
	if !deadline.IsZero() {
		r, cancel = endBy(r, deadline)
	}
	response, err := t.next.RoundTrip(r)
	t.fence.end(err == nil && response.StatusCode < http.StatusInternalServerError, deadline)
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &cancelingBody{response.Body, cancel}
	return response, nil
}

// WrappedRoundTripper lets client-go find what is beneath.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// endBy gives a request its deadline, here and at the API server: what that has not written by then it does
// not write. Until then its answer is waited for, although the program may be stopping: without it the lease
// could not be given up.
func endBy(r *http.Request, deadline time.Time) (*http.Request, func()) {
	if callers, has := r.Context().Deadline(); has && callers.Before(deadline) {
		deadline = callers
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.Context()), deadline)
	r = r.Clone(ctx)
	query := r.URL.Query()
	left := max(time.Until(deadline), time.Millisecond).Truncate(time.Millisecond)
	if asked, err := time.ParseDuration(query.Get("timeout")); err != nil || asked <= 0 || asked > left {
		query.Set("timeout", left.String())
		r.URL.RawQuery = query.Encode()
	}
	return r, cancel
}

// cancelingBody ends a request's context when its answer was read.
type cancelingBody struct {
	io.ReadCloser
	cancel func()
}

func (b *cancelingBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// Lock tells the fence what becomes of the lease.
func (f *Fence) Lock(lock resourcelock.Interface) resourcelock.Interface {
	return &fencedLock{lock, f}
}

type fencedLock struct {
	resourcelock.Interface
	fence *Fence
}

// Get implements resourcelock.Interface. As long as the lease is this replica's, nobody else can have led
// since, however long ago it ran out.
func (l *fencedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		l.fence.lose(errors.New("its lease was deleted"))
	case err == nil && record.HolderIdentity != l.Identity():
		l.fence.lose(fmt.Errorf("its lease went to %q", record.HolderIdentity))
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *fencedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *fencedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != "" {
		return l.write(ctx, record, l.Interface.Update)
	}
	if err := l.fence.giveUp(ctx); err != nil {
		return err
	}
	return l.Interface.Update(ctx, record)
}

// write the lease. A process that lost it once knows too little to lead again: it ends, and is started anew.
func (l *fencedLock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, send func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if err := l.fence.isLost(); err != nil {
		return err
	}
	began := l.fence.now()
	if err := send(ctx, record); err != nil {
		return err
	}
	l.fence.renew(began, time.Duration(record.LeaseDurationSeconds)*time.Second)
	return nil
}
