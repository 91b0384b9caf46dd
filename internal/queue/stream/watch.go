package stream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/json"
)

// Decoder makes an object of its JSON, which is not valid any more once it has returned.
type Decoder func(data []byte) (runtime.Object, error)

// Watch begins one over HTTP. The request is a GET of JSON.
func Watch(ctx context.Context, request *rest.Request, options metav1.ListOptions, decode Decoder) (watch.Interface, error) {
	options.Watch = true
	ctx, cancel := context.WithCancel(ctx)
	body, err := request.SpecificallyVersionedParams(&options, metav1.ParameterCodec, metav1.SchemeGroupVersion).Stream(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	return newWatcher(body, cancel, decode), nil
}

// watcher delivers changes as they come.
type watcher struct {
	body    io.Closer
	cancel  context.CancelFunc
	decode  Decoder
	changes chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func newWatcher(body io.ReadCloser, cancel context.CancelFunc, decode Decoder) *watcher {
	w := &watcher{body: body, cancel: cancel, decode: decode, changes: make(chan watch.Event, 100), stopped: make(chan struct{})}
	go w.read(bufio.NewReaderSize(body, 64<<10))
	return w
}

// ResultChan is part of watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.changes }

// Stop is part of watch.Interface.
func (w *watcher) Stop() {
	w.once.Do(func() {
		close(w.stopped)
		w.cancel()
		_ = w.body.Close()
	})
}

// read ends with the stream; the reflector then starts another watch.
func (w *watcher) read(from *bufio.Reader) {
	defer close(w.changes)
	defer w.Stop()
	var long []byte
	for {
		line, err := from.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			continue
		}
		if err != nil {
			return
		}
		if len(long) > 0 {
			line = append(long, line...)
			long = line[:0]
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		change, err := w.change(line)
		if err != nil {
			change = watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(err).ErrStatus}
		}
		select {
		case w.changes <- change:
		case <-w.stopped:
			return
		}
	}
}

var prefix, middle = []byte(`{"type":"`), []byte(`","object":`)

// change reads one line. One that is not written as the API server writes them goes through the
// client library's decoder.
func (w *watcher) change(line []byte) (watch.Event, error) {
	rest, found := bytes.CutPrefix(line, prefix)
	kind, object, split := bytes.Cut(rest, middle)
	if !found || !split || object[len(object)-1] != '}' || bytes.ContainsAny(kind, `"\`) {
		var raw metav1.WatchEvent
		if err := json.UnmarshalCaseSensitivePreserveInts(line, &raw); err != nil {
			return watch.Event{}, fmt.Errorf("reading a watch: %w", err)
		}
		return w.changed(watch.EventType(raw.Type), raw.Object.Raw)
	}
	return w.changed(watch.EventType(kind), object[:len(object)-1])
}

func (w *watcher) changed(kind watch.EventType, data []byte) (watch.Event, error) {
	if kind == watch.Error {
		status := &metav1.Status{}
		if err := json.UnmarshalCaseSensitivePreserveInts(data, status); err != nil {
			return watch.Event{}, fmt.Errorf("reading an error of a watch: %w", err)
		}
		return watch.Event{Type: kind, Object: status}, nil
	}
	object, err := w.decode(data)
	if err != nil {
		return watch.Event{}, fmt.Errorf("reading a watch: %w", err)
	}
	return watch.Event{Type: kind, Object: object}, nil
}
