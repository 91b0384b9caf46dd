package multicluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"sync"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Another cluster is somebody else's: it may be broken, or not mean well. What it sends is read at a
// rate, and no more of it is held than this cluster can have sent there; what it says of a workload
// counts within what the workload is.
const (
	readBurst     = 256 << 20 // bytes
	readPerSecond = 16 << 20
	mostAnswer    = 128 << 20 // of one that is not a watch: it is read as a whole
	// A cluster may have so many objects of ours more than there are workloads here: those of jobs in
	// parts, and those that were deleted here meanwhile.
	objectsPerWorkload, moreObjects = 8, 10_000
	bytesPerObject                  = 8 << 10 // on average
	mostKinds                       = 100
	overrunPause                    = 5 * time.Minute
	mostMessage                     = 32 << 10 // as the API server limits it
)

var (
	errOverrun  = errors.New("it has more of our objects than it was sent")
	errTooLarge = fmt.Errorf("it answers with more than %d MiB", mostAnswer>>20)
)

// throttle reads answers no faster than the rate, and none that is too large.
func throttle(next http.RoundTripper) http.RoundTripper {
	return &throttled{next: next, limit: rate.NewLimiter(readPerSecond, readBurst)}
}

type throttled struct {
	next  http.RoundTripper
	limit *rate.Limiter
}

// RoundTrip is part of http.RoundTripper.
func (t *throttled) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil && response.Body != nil {
		body := &throttledBody{ReadCloser: response.Body, ctx: request.Context(), limit: t.limit, left: mostAnswer}
		if request.URL.Query().Get("watch") == "true" {
			body.left = math.MaxInt64 // each event has a limit of its own
		}
		response.Body = body
	}
	return response, err
}

type throttledBody struct {
	io.ReadCloser
	ctx   context.Context //nolint:containedctx // a body lives as long as its request
	limit *rate.Limiter
	left  int64 // bytes that it may still have
}

// Read is part of io.Reader.
func (b *throttledBody) Read(p []byte) (int, error) {
	if len(p) > readBurst {
		p = p[:readBurst]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	if n > 0 {
		if waiting := b.limit.WaitN(b.ctx, n); waiting != nil {
			return n, errors.Join(err, waiting)
		}
	}
	return n, err
}

// held counts the objects of a cluster that are held here, and ends the session with one that has too
// many, or too large ones.
type held struct {
	most func() int
	fail func(error)

	mu      sync.Mutex
	objects map[string]int // sizes, by what the cache knows them by: UIDs are the cluster's to choose
	bytes   int
	allowed int
}

// count is a transform of the informers: it sees every object before it is held.
func (h *held) count(obj any) (any, error) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return obj, nil
	}
	o.SetManagedFields(nil)
	var size countingWriter
	if err := json.NewEncoder(&size).Encode(o); err != nil {
		return nil, err
	}
	key := heldKey(o)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bytes += int(size) - h.objects[key]
	h.objects[key] = int(size)
	if !h.within() {
		if h.allowed = h.most(); !h.within() {
			h.fail(fmt.Errorf("%w: more than %d, or %d MiB; does another manager use the same multiKueue.origin?",
				errOverrun, h.allowed, h.allowed*bytesPerObject>>20))
			return nothing(o), nil
		}
	}
	return obj, nil
}

// nothing is an object in the place of another one until the session has ended. An error would be logged, with the
// object as it was sent.
func nothing(o client.Object) client.Object {
	out := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	out.GetObjectKind().SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	out.SetName("too-many")
	return out
}

func (h *held) within() bool {
	return len(h.objects) <= h.allowed && h.bytes <= h.allowed*bytesPerObject
}

func (h *held) forget(o client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bytes -= h.objects[heldKey(o)]
	delete(h.objects, heldKey(o))
}

func heldKey(o client.Object) string {
	return fmt.Sprintf("%T %s %s/%s", o, o.GetObjectKind().GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName())
}

// countingWriter counts what is written.
type countingWriter int

func (w *countingWriter) Write(p []byte) (int, error) {
	*w += countingWriter(len(p))
	return len(p), nil
}

var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,1000}[A-Za-z0-9_])?$`)

// believed is a condition of a copy in a form that can be written here.
func believed(c *metav1.Condition) *metav1.Condition {
	out := c.DeepCopy()
	if !reasonPattern.MatchString(out.Reason) {
		out.Reason = "InOtherCluster"
	}
	if len(out.Message) > mostMessage {
		out.Message = out.Message[:mostMessage-3] + "..."
	}
	return out
}

// reclaimable is how many pods of each set need no quota any more, as far as it can be true: sets that the
// workload has, no more pods than they have, and never fewer than before.
func reclaimable(wl *kueue.Workload, said []kueue.ReclaimablePod) []kueue.ReclaimablePod {
	counts := map[kueue.PodSetReference]int32{}
	for _, list := range [][]kueue.ReclaimablePod{wl.Status.ReclaimablePods, said} {
		for _, r := range list {
			counts[r.Name] = max(counts[r.Name], r.Count)
		}
	}
	var out []kueue.ReclaimablePod
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		if n := min(counts[set.Name], set.Count); n > 0 {
			out = append(out, kueue.ReclaimablePod{Name: set.Name, Count: n})
		}
	}
	return out
}
