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
func TestWhatWasTooLateIsSentAgain(t *testing.T) {
	const late, wrong = "etcdserver: request timed out", "failed calling webhook"
	const slow = wrong + ` x: failed to call webhook: Post https://127.0.0.1:1/mutate?timeout=10s: context deadline exceeded`
	const gone = wrong + ` x: failed to call webhook: Post https://127.0.0.1:1/mutate?timeout=10s: dial tcp 127.0.0.1:1: connect: connection refused`
	const busy = "Timeout: request did not complete within requested timeout - context deadline exceeded"
	for name, c := range map[string]struct {
		status int
		says   string // before the object is taken
		// asked is how often, by who starts a cluster, and by a person's commands: those may create what has no name yet, and
		// what the store was too late for may be there.
		asked, commands int32
	}{
		"late":    {status: http.StatusInternalServerError, says: late, asked: 2, commands: 1},
		"slow":    {status: http.StatusInternalServerError, says: slow, asked: 2, commands: 2},
		"gone":    {status: http.StatusInternalServerError, says: gone, asked: 2, commands: 2},
		"busy":    {status: http.StatusGatewayTimeout, says: busy, asked: 2, commands: 1},
		"broken":  {status: http.StatusInternalServerError, says: wrong, asked: 1, commands: 1},
		"refused": {status: http.StatusUnprocessableEntity, says: late, asked: 1, commands: 1},
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
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
			// sends checks how often something is sent, and that the error is what the server said, if it is not sent again.
			sends := func(as func(*rest.Config), times int32, context string, send func(client.Client, *unstructured.Unstructured) error) {
				t.Helper()
				config := &rest.Config{Host: server.URL}
				as(config)
				cluster, err := client.New(config, client.Options{Mapper: mapper})
				if err != nil {
					t.Fatal(err)
				}
				object := &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "apiVersion": "v1"}}
				object.SetName("c")
				object.SetNamespace(metav1.NamespaceDefault)
				asked.Store(0)
				want := "<nil>"
				if times == 1 {
					want = context + c.says
				}
				if err := send(cluster, object); fmt.Sprint(err) != want {
					t.Errorf("the error is %q, not %q", err, want)
				}
				if asked.Load() != times {
					t.Errorf("asked %d times, not %d", asked.Load(), times)
				}
			}
			sends(AskAgain, c.asked, "applying ConfigMap c: ", func(cluster client.Client, object *unstructured.Unstructured) error {
				return apply(t.Context(), cluster, []*unstructured.Unstructured{object})
			})
			sends(AskWebhooksAgain, c.commands, "", func(cluster client.Client, object *unstructured.Unstructured) error {
				return cluster.Create(t.Context(), object)
			})
		})
	}
}
