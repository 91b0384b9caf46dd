package controlplane

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Kubernetes' controllers apply objects through client-go's typed clients, of which tools/compiler.sh edits what Apply takes. What
// is sent is the same with and without that.
func TestTypedClientsApply(t *testing.T) {
	sent := make(chan *http.Request, 1)
	body := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		sent <- r
		body <- string(data)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}})
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Pods("default").ApplyStatus(t.Context(), applycore.Pod("p", "default").WithLabels(map[string]string{"a": "b"}),
		metav1.ApplyOptions{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != "u" {
		t.Errorf("the answer is %v", got)
	}
	r := <-sent
	if r.Method != http.MethodPatch || r.URL.Path != "/api/v1/namespaces/default/pods/p/status" || r.URL.Query().Get("fieldManager") != "test" {
		t.Errorf("sent %s %s", r.Method, r.URL)
	}
	if want := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"default","labels":{"a":"b"}}}`; <-body != want {
		t.Errorf("the object sent is not %s", want)
	}
	if _, err := client.CoreV1().Pods("default").Apply(t.Context(), applycore.Pod("", "default"), metav1.ApplyOptions{}); err == nil {
		t.Error("an object without a name is applied")
	}
}
