package program

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const testLease = 15 * time.Second

// fencedClock is a fence whose clocks a test moves.
func fencedClock() (*Fence, *reading) {
	clocks := &reading{wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	return &Fence{now: func() reading { return *clocks }}, clocks
}

func TestWritesEndBeforeTheLease(t *testing.T) {
	for name, tc := range map[string]struct {
		monotonic, wall time.Duration // since the lease was renewed
		ends            bool
	}{
		"renewed just now":     {0, 0, false},
		"a while ago":          {11 * time.Second, 11 * time.Second, false},
		"the margin has begun": {12 * time.Second, 12 * time.Second, true},
		"long ago":             {time.Hour, time.Hour, true},
		"the host was suspended: one clock stood still":   {time.Second, time.Hour, true},
		"the wall clock was set back":                     {12 * time.Second, -time.Hour, true},
		"it was set back, and the lease lasts":            {time.Second, -time.Hour, false},
		"it was set ahead: nobody knows by how much":      {time.Second, time.Minute, true},
		"less is left than the API server could be asked": {12*time.Second - 1, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, clocks := fencedClock()
			if deadline, err := f.Deadline(); err != nil || !deadline.IsZero() {
				t.Fatalf("a replica that never led is fenced: %v, %v", deadline, err)
			}
			f.renew(*clocks, testLease)
			clocks.monotonic += tc.monotonic
			clocks.wall = clocks.wall.Add(tc.wall)
			if _, err := f.Deadline(); (err != nil) != tc.ends {
				t.Errorf("error %v, want one: %t", err, tc.ends)
			}
		})
	}
}

// roundTrips calls itself.
type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int) *http.Response {
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(""))}
}

func TestRequestsCarryTheEndOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFence()
		var sent *http.Request
		transport := f.Transport(roundTrips(func(r *http.Request) (*http.Response, error) {
			sent = r
			return answer(http.StatusOK), nil
		}))
		send := func(ctx context.Context, method, url string) error {
			t.Helper()
			sent = nil
			r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.RoundTrip(r)
			if err == nil {
				_ = response.Body.Close()
			}
			return err
		}
		const workload = "https://api/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads/b/status"
		if err := send(t.Context(), http.MethodPatch, workload+"?force=true"); err != nil || sent.URL.RawQuery != "force=true" {
			t.Fatalf("a replica that never led sends %v as if it did: %v", sent, err)
		}
		f.renew(f.now(), testLease)
		time.Sleep(4 * time.Second)
		within, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for _, method := range []string{http.MethodPatch, http.MethodPut, http.MethodPost, http.MethodDelete} {
			for _, tc := range []struct {
				ctx         context.Context
				asked, want string
			}{
				{t.Context(), "?force=true", "force=true&timeout=8s"},
				{t.Context(), "?timeout=34s", "timeout=8s"},
				{t.Context(), "?timeout=0s", "timeout=8s"},
				{t.Context(), "?timeout=30ms", "timeout=30ms"},
				{within, "", "timeout=5s"},
			} {
				if err := send(tc.ctx, method, workload+tc.asked); err != nil {
					t.Fatal(err)
				}
				if sent.URL.RawQuery != tc.want {
					t.Errorf("%s with %q is sent with %q, want %q", method, tc.asked, sent.URL.RawQuery, tc.want)
				}
				if deadline, has := sent.Context().Deadline(); !has || time.Until(deadline) > 8*time.Second {
					t.Errorf("%s with %q has the deadline %v here", method, tc.asked, deadline)
				}
			}
		}
		time.Sleep(testLease)
		if err := send(t.Context(), http.MethodGet, workload); err != nil || sent.URL.RawQuery != "" {
			t.Errorf("reading is fenced: %v, %v", sent, err)
		}
		if err := send(t.Context(), http.MethodPatch, workload); err == nil || sent != nil || !strings.Contains(err.Error(), "another replica may lead") {
			t.Errorf("after its lease it sent %v: %v", sent, err)
		}
	})
}

// memoryLock is a lease in memory.
type memoryLock struct {
	resourcelock.Interface
	record  *resourcelock.LeaderElectionRecord
	writes  int
	failing error
	onWrite func()
}

func (l *memoryLock) Identity() string { return "us" }

func (l *memoryLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "lease")
	}
	return l.record, nil, nil
}

func (l *memoryLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *memoryLock) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	if l.writes++; l.onWrite != nil {
		l.onWrite()
	}
	if l.failing == nil {
		l.record = &r
	}
	return l.failing
}

var ours = resourcelock.LeaderElectionRecord{HolderIdentity: "us", LeaseDurationSeconds: int(testLease / time.Second)}

func TestTheLeaseIsRenewed(t *testing.T) {
	f, clocks := fencedClock()
	lease := &memoryLock{}
	lock := f.Lock(lease)
	pass := func(d time.Duration) { clocks.monotonic, clocks.wall = clocks.monotonic+d, clocks.wall.Add(d) }
	renew := func(write func(context.Context, resourcelock.LeaderElectionRecord) error, want error) {
		t.Helper()
		if err := write(t.Context(), ours); !errors.Is(err, want) {
			t.Fatalf("error %v, want %v", err, want)
		}
	}
	writes := func(want bool) {
		t.Helper()
		if _, err := f.Deadline(); (err == nil) != want {
			t.Fatalf("it writes: %v, want %t", err, want)
		}
	}
	renew(lock.Create, nil)
	writes(true)
	pass(10 * time.Second)
	lease.failing = errors.New("no answer")
	renew(lock.Update, lease.failing)
	pass(3 * time.Second)
	writes(false) // the one that failed does not count
	lease.failing, lease.onWrite = nil, func() { pass(11 * time.Second) }
	renew(lock.Update, nil)
	lease.onWrite = nil
	writes(true)
	pass(2 * time.Second)
	writes(false) // others may have seen it 13 seconds ago, when it was sent

	// Hours later the lease is still ours: nobody else led.
	pass(time.Hour)
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	renew(lock.Update, nil)
	writes(true)
}

// Who finds that others had the lease does not lead again, though it could have it: what they did is not in
// this process's decisions.
func TestALostLeaseIsNotTakenBack(t *testing.T) {
	for name, found := range map[string]*resourcelock.LeaderElectionRecord{
		"another leads":       {HolderIdentity: "them", LeaseDurationSeconds: 15},
		"another led, and it": {HolderIdentity: "", LeaseDurationSeconds: 1},
		"it was deleted":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := fencedClock()
			lease := &memoryLock{record: &resourcelock.LeaderElectionRecord{HolderIdentity: "them before"}}
			lock := f.Lock(lease)
			if _, _, err := lock.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := lock.Update(t.Context(), ours); err != nil {
				t.Fatalf("a replica that never led cannot begin: %v", err)
			}
			lease.record, lease.writes = found, 0
			_, _, _ = lock.Get(t.Context())
			if _, err := f.Deadline(); err == nil {
				t.Error("it writes on")
			}
			for _, write := range []func(context.Context, resourcelock.LeaderElectionRecord) error{lock.Update, lock.Create} {
				if err := write(t.Context(), ours); err == nil || lease.writes != 0 {
					t.Errorf("it leads again: %v after %d writes", err, lease.writes)
				}
			}
		})
	}
}

// The lease is given up when all writes were answered, and no more begin.
func TestTheLeaseIsGivenUp(t *testing.T) {
	given := resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}
	for name, tc := range map[string]struct {
		ends func() (*http.Response, error) // how a write ends that is under way
		want error
	}{
		"all were answered":            {func() (*http.Response, error) { return answer(http.StatusConflict), nil }, nil},
		"one had no answer":            {func() (*http.Response, error) { return nil, errors.New("connection reset") }, errUnsure},
		"one took the server too long": {func() (*http.Response, error) { return answer(http.StatusGatewayTimeout), nil }, errUnsure},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := NewFence()
				lease := &memoryLock{}
				lock := f.Lock(lease)
				if err := lock.Create(t.Context(), ours); err != nil {
					t.Fatal(err)
				}
				server := make(chan struct{})
				stopping, stop := context.WithCancel(t.Context())
				send := func() error {
					r, err := http.NewRequestWithContext(stopping, http.MethodPatch, "https://api/x", nil)
					if err != nil {
						return err
					}
					response, err := f.Transport(roundTrips(func(r *http.Request) (*http.Response, error) {
						select {
						case <-server:
							return tc.ends()
						case <-r.Context().Done():
							return nil, r.Context().Err()
						}
					})).RoundTrip(r)
					if err != nil {
						return err
					}
					return response.Body.Close()
				}
				go func() { _ = send() }()
				synctest.Wait()
				stop() // its answer is waited for all the same
				released := make(chan error, 1)
				go func() { released <- lock.Update(t.Context(), given) }()
				synctest.Wait()
				select {
				case err := <-released:
					t.Fatalf("given up with a write under way: %v", err)
				default:
				}
				if err := send(); !errors.Is(err, errGivenUp) {
					t.Errorf("a write began: %v", err)
				}
				close(server)
				if err := <-released; !errors.Is(err, tc.want) {
					t.Errorf("error %v, want %v", err, tc.want)
				}
				if is := lease.record.HolderIdentity == ""; is != (tc.want == nil) {
					t.Errorf("another may lead: %t", is)
				}
			})
		})
	}
}

// A server that never answers does not hold the lease's end back for ever.
func TestGivingUpDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFence()
		f.renew(f.now(), testLease)
		if _, err := f.begin(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := f.giveUp(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}
