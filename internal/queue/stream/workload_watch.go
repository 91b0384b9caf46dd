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
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/json"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Workloads is a ListerWatcher of all Workloads that lists with another one, and watches by itself.
func Workloads(config *rest.Config, scheme *runtime.Scheme, lister cache.ListerWatcher) (cache.ListerWatcher, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &kueue.SchemeGroupVersion, "/apis"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client that watches workloads: %w", err)
	}
	from := cache.ToListerWatcherWithContext(lister)
	params := runtime.NewParameterCodec(scheme)
	return &cache.ListWatch{
		ListWithContextFunc: from.ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			ctx, cancel := context.WithCancel(ctx)
			body, err := client.Get().Resource("workloads").VersionedParams(&options, params).Stream(ctx)
			if err != nil {
				cancel()
				return nil, err
			}
			return newWatcher(body, cancel), nil
		},
	}, nil
}

// watcher delivers changes as they come.
type watcher struct {
	body    io.Closer
	cancel  context.CancelFunc
	changes chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func newWatcher(body io.ReadCloser, cancel context.CancelFunc) *watcher {
	w := &watcher{body: body, cancel: cancel, changes: make(chan watch.Event, 100), stopped: make(chan struct{})}
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
		change, err := decode(line)
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

// lean is a Workload without its managed fields.
type lean struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        meta                 `json:"metadata"`
	Spec            kueue.WorkloadSpec   `json:"spec"`
	Status          kueue.WorkloadStatus `json:"status"`
}

type meta struct {
	Name                       string                  `json:"name"`
	GenerateName               string                  `json:"generateName"`
	Namespace                  string                  `json:"namespace"`
	UID                        types.UID               `json:"uid"`
	ResourceVersion            string                  `json:"resourceVersion"`
	Generation                 int64                   `json:"generation"`
	CreationTimestamp          metav1.Time             `json:"creationTimestamp"`
	DeletionTimestamp          *metav1.Time            `json:"deletionTimestamp"`
	DeletionGracePeriodSeconds *int64                  `json:"deletionGracePeriodSeconds"`
	Labels                     map[string]string       `json:"labels"`
	Annotations                map[string]string       `json:"annotations"`
	OwnerReferences            []metav1.OwnerReference `json:"ownerReferences"`
	Finalizers                 []string                `json:"finalizers"`
}

func (l *lean) workload() *kueue.Workload {
	m := l.Metadata
	return &kueue.Workload{TypeMeta: l.TypeMeta, Spec: l.Spec, Status: l.Status, ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, GenerateName: m.GenerateName, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Generation: m.Generation, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds, Labels: m.Labels, Annotations: m.Annotations,
		OwnerReferences: m.OwnerReferences, Finalizers: m.Finalizers,
	}}
}

var prefix, middle = []byte(`{"type":"`), []byte(`","object":`)

// decode reads one line. One that is not written as the API server writes them goes through the
// client library's decoder.
func decode(line []byte) (watch.Event, error) {
	rest, found := bytes.CutPrefix(line, prefix)
	kind, object, split := bytes.Cut(rest, middle)
	if !found || !split || object[len(object)-1] != '}' || bytes.ContainsAny(kind, `"\`) {
		var raw metav1.WatchEvent
		if err := json.UnmarshalCaseSensitivePreserveInts(line, &raw); err != nil {
			return watch.Event{}, fmt.Errorf("reading the watch of workloads: %w", err)
		}
		return decodeObject(watch.EventType(raw.Type), raw.Object.Raw)
	}
	return decodeObject(watch.EventType(kind), object[:len(object)-1])
}

func decodeObject(kind watch.EventType, object []byte) (watch.Event, error) {
	if kind == watch.Error {
		status := &metav1.Status{}
		if err := json.UnmarshalCaseSensitivePreserveInts(object, status); err != nil {
			return watch.Event{}, fmt.Errorf("reading an error of the watch of workloads: %w", err)
		}
		return watch.Event{Type: kind, Object: status}, nil
	}
	var l lean
	if err := json.UnmarshalCaseSensitivePreserveInts(object, &l); err != nil {
		return watch.Event{}, fmt.Errorf("reading the watch of workloads: %w", err)
	}
	return watch.Event{Type: kind, Object: l.workload()}, nil
}
