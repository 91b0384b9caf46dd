package multicluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A cluster that shows more objects than it can have been sent is left alone; what it has deleted does not count.
func TestHostileClusterIsHeldToWhatItWasSent(t *testing.T) {
	var failed error
	sent := 10
	h := &held{most: func() int { return sent }, fail: func(err error) { failed = err }, objects: map[string]int{}}
	show := func(from, to int) (err error) {
		for i := from; i < to; i++ {
			wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), UID: "all the same", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
			for range 3 { // it changes, too
				_, one := h.count(wl)
				err = errors.Join(err, one)
			}
			if len(wl.ManagedFields) > 0 {
				t.Fatal("fields that nobody reads are held")
			}
		}
		return err
	}
	if err := errors.Join(show(0, 10), failed); err != nil {
		t.Fatalf("as many as were sent: %v", err)
	}
	for i := range 5 {
		h.forget(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}})
	}
	if err := errors.Join(show(10, 15), failed); err != nil {
		t.Fatalf("others in the place of five: %v", err)
	}
	sent = 12
	if err := errors.Join(show(15, 17), failed); err != nil {
		t.Fatalf("more were sent: %v", err)
	}
	if err := show(17, 18); err != nil || !errors.Is(failed, errOverrun) {
		t.Fatalf("one too many: %v, the session failed with %v", err, failed)
	}
	if len(h.objects) > 13 {
		t.Errorf("%d objects are held", len(h.objects))
	}
}

// Few objects that are large count as many.
func TestHostileClusterIsHeldToSizes(t *testing.T) {
	var failed error
	h := &held{most: func() int { return 10 }, fail: func(err error) { failed = err }, objects: map[string]int{}}
	grow := func(size int) error {
		out, err := h.count(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"a": strings.Repeat("x", size)}}})
		if wl := out.(*kueue.Workload); (wl.Annotations == nil) != (failed != nil) {
			t.Errorf("with the session failed by %v, %s is held", failed, wl.Name)
		}
		return err
	}
	for _, size := range []int{9 * bytesPerObject, 100, 9 * bytesPerObject} { // it is counted as it is now
		if err := errors.Join(grow(size), failed); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
	}
	if err := grow(11 * bytesPerObject); err != nil || !errors.Is(failed, errOverrun) {
		t.Errorf("as much as eleven have, where ten may be: %v, the session failed with %v", err, failed)
	}
	h.forget(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if h.bytes != 0 {
		t.Errorf("%d bytes are left", h.bytes)
	}
}

type answer struct{ body string }

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// What a cluster sends is read at a rate: an endless answer ends with its request.
func TestAnswersAreReadAtARate(t *testing.T) {
	transport := &throttled{next: answer{strings.Repeat("x", 1000)}, limit: rate.NewLimiter(1, 600)}
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://worker", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	part := make([]byte, 500)
	if n, err := io.ReadFull(response.Body, part); n != 500 || err != nil {
		t.Fatalf("%d bytes within the burst: %v", n, err)
	}
	cancel()
	if rest, err := io.ReadAll(response.Body); err == nil || bytes.Count(rest, []byte("x")) > 500 {
		t.Fatalf("%d bytes beyond the burst: %v", len(rest), err)
	}
}

// endless is a body without end.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) { e.read += int64(len(p)); return len(p), nil }
func (e *endless) Close() error               { return nil }

// An answer that is read as a whole has an end; a watch need not.
func TestAnswersHaveAnEnd(t *testing.T) {
	for query, want := range map[string]error{"": errTooLarge, "?limit=1": errTooLarge, "?watch=true": nil} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://worker/"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		body := &endless{}
		from := &throttled{limit: rate.NewLimiter(rate.Inf, readBurst), next: roundTrip(func() *http.Response { return &http.Response{Body: body} })}
		response, err := from.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, io.LimitReader(response.Body, mostAnswer+1<<20))
		if !errors.Is(err, want) || want != nil && n > mostAnswer {
			t.Errorf("%q: %d bytes, then %v", query, n, err)
		}
		_ = response.Body.Close()
	}
}

type roundTrip func() *http.Response

func (f roundTrip) RoundTrip(*http.Request) (*http.Response, error) { return f(), nil }

// What a cluster says of a workload counts as far as it can be true.
func TestHostileClusterIsBelievedWithinReason(t *testing.T) {
	wl := &kueue.Workload{}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 3}, {Name: "more", Count: 2}}
	wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "more", Count: 1}}
	said := []kueue.ReclaimablePod{{Name: "main", Count: 1 << 30}, {Name: "more", Count: -5}, {Name: "forged", Count: 7}, {Name: "main", Count: 1}}
	want := []kueue.ReclaimablePod{{Name: "main", Count: 3}, {Name: "more", Count: 1}}
	if got := reclaimable(wl, said); !reflect.DeepEqual(got, want) {
		t.Errorf("reclaimable %v, want %v", got, want)
	}
	for name, c := range map[string]*metav1.Condition{
		"an empty reason":  {},
		"a reason of none": {Reason: "not a reason\n"},
		"an endless one":   {Reason: strings.Repeat("a", 1<<20), Message: strings.Repeat("b", 1<<20)},
	} {
		got := believed(c)
		if !reasonPattern.MatchString(got.Reason) || len(got.Reason) > 1024 || len(got.Message) > mostMessage {
			t.Errorf("%s becomes %d bytes of reason, %d of message", name, len(got.Reason), len(got.Message))
		}
	}
	if fine := (&metav1.Condition{Reason: "JobFinished", Message: "Job finished successfully"}); *believed(fine) != *fine {
		t.Errorf("%+v became %+v", fine, believed(fine))
	}
}
