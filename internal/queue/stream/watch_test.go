package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func sample() *kueue.Workload {
	wl := &kueue.Workload{TypeMeta: metav1.TypeMeta{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "Workload"}}
	// Every field of the metadata has a value, so that none is forgotten.
	wl.ObjectMeta = metav1.ObjectMeta{
		Name: "a", GenerateName: "a-", Namespace: "ns", UID: "uid", ResourceVersion: "7", Generation: 3,
		CreationTimestamp: metav1.Unix(100, 0), DeletionTimestamp: ptr.To(metav1.Unix(200, 0)), DeletionGracePeriodSeconds: ptr.To(int64(5)),
		Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"quote": "\"}\n"},
		OwnerReferences: []metav1.OwnerReference{{Name: "job"}}, Finalizers: []string{"f"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}},
	}
	wl.Spec.QueueName = "main"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}}}
	wl.Status.Conditions = []metav1.Condition{{Type: "Admitted", Status: "True"}}
	return wl
}

func line(t *testing.T, kind string, object any) []byte {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(`{"type":"` + kind + `","object":` + string(data) + "}\n")
}

func TestNothingIsLost(t *testing.T) {
	want := sample()
	for i := range reflect.TypeFor[metav1.ObjectMeta]().NumField() {
		field := reflect.ValueOf(want.ObjectMeta).Field(i)
		if name := reflect.TypeFor[metav1.ObjectMeta]().Field(i).Name; field.IsZero() && name != "SelfLink" {
			t.Fatalf("the sample has no %s", name)
		}
	}
	want.ManagedFields = nil
	written := line(t, "MODIFIED", sample())
	indented := &bytes.Buffer{}
	if err := json.Indent(indented, written, "", " "); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"as the API server writes it": bytes.TrimSpace(written), "written in another way": indented.Bytes()} {
		got, err := (&watcher{decode: decodeWorkload}).change(text)
		if err != nil || got.Type != watch.Modified || !equality.Semantic.DeepEqual(got.Object, want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", name, err, got.Object, want)
		}
	}
}

// A watch over HTTP: what is long, what is no workload, and the end.
func TestWatch(t *testing.T) {
	long := sample()
	long.Annotations["long"] = strings.Repeat("x", 200<<10)
	status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Reason: metav1.StatusReasonExpired, Code: 410}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/kueue.x-k8s.io/v1beta2/workloads" || r.URL.Query().Get("watch") != "true" || r.URL.Query().Get("resourceVersion") != "5" {
			http.Error(w, r.URL.String(), http.StatusNotFound)
			return
		}
		for _, text := range [][]byte{line(t, "ADDED", sample()), line(t, "MODIFIED", long), line(t, "ERROR", status), []byte("nonsense\n")} {
			_, _ = w.Write(text)
		}
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, kueue.SchemeGroupVersion)
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	lw, err := Workloads(&rest.Config{Host: server.URL}, scheme, &cache.ListWatch{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := cache.ToListerWatcherWithContext(lw).WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "5"})
	if err != nil {
		t.Fatal(err)
	}
	var types []watch.EventType
	for change := range got.ResultChan() {
		types = append(types, change.Type)
		switch o := change.Object.(type) {
		case *kueue.Workload:
			if o.Name != "a" || (change.Type == watch.Modified) != (len(o.Annotations["long"]) == 200<<10) {
				t.Errorf("%s brought %s with %d letters", change.Type, o.Name, len(o.Annotations["long"]))
			}
		case *metav1.Status:
			if len(types) == 3 && o.Code != 410 {
				t.Errorf("the API server's error came as %+v", o)
			}
		}
	}
	if want := []watch.EventType{watch.Added, watch.Modified, watch.Error, watch.Error}; !reflect.DeepEqual(types, want) {
		t.Errorf("got %v, want %v", types, want)
	}
}

// Stopping ends a watch that nobody reads.
func TestStop(t *testing.T) {
	from, to := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	w := newWatcher(from, cancel, decodeWorkload)
	go func() {
		for {
			if _, err := to.Write([]byte(`{"type":"ADDED","object":{"metadata":{"name":"a"}}}` + "\n")); err != nil {
				return
			}
		}
	}()
	<-w.ResultChan()
	w.Stop()
	w.Stop()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Error("the request goes on")
	}
	for range w.ResultChan() { // it is closed
	}
}
