package gpu_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu"
	"github.com/elastic-ai/elastic/internal/placement"
)

// hooked is a world in which pods may choose the policy "theirs", which answer gives.
func hooked(t *testing.T, answer http.HandlerFunc) *world {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	hook, err := gpu.NewHook(server.URL, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, hooks: map[string]*gpu.Hook{"theirs": hook}}
	w.start(t, placement.Options{Policy: "binpack", Policies: map[string]string{"theirs": "binpack"}})
	return w
}

func TestPolicyByWebhookChoosesNodeAndCard(t *testing.T) {
	var asked gpu.HookRequest
	w := hooked(t, func(rw http.ResponseWriter, r *http.Request) {
		asked = gpu.HookRequest{}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(rw).Encode(gpu.HookResponse{Nodes: []gpu.HookNode{{Name: "b", Score: 10, Cards: []int{1}}, {Name: "a", Score: 2}}})
	})
	first, second := share("first", 30), share("second", 30)
	second.Annotations = map[string]string{egpu.PolicyAnnotation: "theirs"}
	w.add(node("a", 2), node("b", 2), first, second)
	w.mustBind(first, "a")
	if scores := w.score(second, "a", "b"); scores["a"] != 2 || scores["b"] != 10 {
		t.Fatalf("scores %v: want the webhook's", scores)
	}
	if len(asked.Nodes) != 2 || asked.Pod.Name != "second" || asked.Nodes[0].Cards[0].FreeCore != 70 {
		t.Fatalf("it was asked %+v", asked)
	}
	w.mustBind(second, "b")
	if cards := get(w, second).Annotations["elasticgpu.io/container-main"]; cards != "1" {
		t.Fatalf("it has card %s: want the webhook's choice", cards)
	}
	if c := w.card("b", 1); c.FreeCore != 70 {
		t.Fatalf("card %+v", c)
	}
}

func TestClusterPolicyDecidesWhileTheWebhookFails(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"error": func(rw http.ResponseWriter, _ *http.Request) {
			http.Error(rw, "out of order", http.StatusInternalServerError)
		},
		"nonsense": func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("?")) },
		"too large": func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write([]byte(`{"nodes":[{"name":"b","score":11}]}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := hooked(t, answer)
			first, second := share("first", 30), share("second", 30)
			second.Annotations = map[string]string{egpu.PolicyAnnotation: "theirs"}
			w.add(node("a", 2), node("b", 2), first, second)
			w.mustBind(first, "a")
			if scores := w.score(second, "a", "b"); scores["a"] <= scores["b"] {
				t.Fatalf("scores %v: want binpack's", scores)
			}
			w.mustBind(second, "a")
			if cards := get(w, second).Annotations["elasticgpu.io/container-main"]; cards != "0" {
				t.Fatalf("it has card %s", cards)
			}
		})
	}
}
