package local

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A store that answers too late ends no start, nor does a webhook whose program starts again; a request that is wrong is not sent again.
func TestApplyAsksAgainWhatTheStoreWasTooLateFor(t *testing.T) {
	const late, wrong = "etcdserver: request timed out", "failed calling webhook"
	const slow = wrong + ` x: failed to call webhook: Post https://127.0.0.1:1/mutate?timeout=10s: context deadline exceeded`
	const gone = wrong + ` x: failed to call webhook: Post https://127.0.0.1:1/mutate?timeout=10s: dial tcp 127.0.0.1:1: connect: connection refused`
	for name, c := range map[string]struct {
		status int
		says   string // before the object is taken
		asked  int32
		err    string
	}{
		"late":    {status: http.StatusInternalServerError, says: late, asked: 2, err: "<nil>"},
		"slow":    {status: http.StatusInternalServerError, says: slow, asked: 2, err: "<nil>"},
		"gone":    {status: http.StatusInternalServerError, says: gone, asked: 2, err: "<nil>"},
		"broken":  {status: http.StatusInternalServerError, says: wrong, asked: 1, err: "applying ConfigMap c: " + wrong},
		"refused": {status: http.StatusUnprocessableEntity, says: late, asked: 1, err: "applying ConfigMap c: " + late},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if asked.Add(1) == 1 {
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"` + c.says + `"}`))
					return
				}
				_, _ = w.Write([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","namespace":"n"}}`))
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			AskAgain(config)
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
			cluster, err := client.New(config, client.Options{Mapper: mapper})
			if err != nil {
				t.Fatal(err)
			}
			object := &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "apiVersion": "v1"}}
			object.SetName("c")
			object.SetNamespace(metav1.NamespaceDefault)
			err = apply(t.Context(), cluster, []*unstructured.Unstructured{object})
			if fmt.Sprint(err) != c.err {
				t.Errorf("the error is %q, not %q", err, c.err)
			}
			if asked.Load() != c.asked {
				t.Errorf("asked %d times, not %d", asked.Load(), c.asked)
			}
		})
	}
}
