package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/web"
)

// The largest cluster that the page has to show.
const (
	manyNodes     = 5000
	cardsOfNode   = 8
	manyWorkloads = 20_000
	manyQueues    = 50
)

// TestScale shows 5,000 nodes with 40,000 cards and 20,000 workloads, and changes them 10,000 times.
func TestScale(t *testing.T) {
	needBrowser(t)
	api := newAPI()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	listener := httptest.NewServer(web.New(t.Context(), web.Options{Access: web.NewInCluster(&rest.Config{Host: server.URL}, nil), Cluster: "large"}))
	t.Cleanup(listener.CloseClientConnections)
	browse(t, "scale.test.mjs", "ELASTIC_LINK="+listener.URL, "ELASTIC_CHANGE="+server.URL+"/change")
	api.mu.Lock()
	defer api.mu.Unlock()
	for _, person := range []string{"ada", "bob"} {
		if read := api.readBy["Bearer "+person]; len(read) != len(api.kinds) {
			t.Errorf("%s is shown what was not read with their rights: they read %v", person, read)
		}
	}
	if len(api.readBy) != 2 {
		t.Errorf("someone else read: %v", api.readBy)
	}
}

// api serves lists and watches of a large cluster over HTTP, as an API server does, and changes them on request.
// A real one with so many objects takes minutes to fill. Objects are encoded beforehand: what is measured is the page and its
// server, and an API server has a computer of its own.
type api struct {
	mu       sync.Mutex
	kinds    map[string]*listed
	watchers map[chan change]string
	changes  int
	readBy   map[string]map[string]bool // which kinds were read whole with which token
}

// listed is a kind and its objects, in order.
type listed struct {
	kind, version string
	objects       []json.RawMessage
}

type change struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

func newAPI() *api {
	a := &api{watchers: map[chan change]string{}, readBy: map[string]map[string]bool{}, kinds: map[string]*listed{
		"/api/v1/nodes":                              {kind: "Node", version: "v1"},
		"/api/v1/pods":                               {kind: "PartialObjectMetadata", version: "meta.k8s.io/v1"},
		"/apis/elasticgpu.io/v1alpha1/gpus":          {kind: "GPU", version: "elasticgpu.io/v1alpha1"},
		"/apis/kueue.x-k8s.io/v1beta2/clusterqueues": {kind: "ClusterQueue", version: "kueue.x-k8s.io/v1beta2"},
		"/apis/kueue.x-k8s.io/v1beta2/cohorts":       {kind: "Cohort", version: "kueue.x-k8s.io/v1beta2"},
		"/apis/kueue.x-k8s.io/v1beta2/localqueues":   {kind: "LocalQueue", version: "kueue.x-k8s.io/v1beta2"},
		"/apis/kueue.x-k8s.io/v1beta2/workloads":     {kind: "Workload", version: "kueue.x-k8s.io/v1beta2"},
	}}
	add := func(path string, objects ...any) {
		for _, object := range objects {
			data, err := json.Marshal(object)
			if err != nil {
				panic(err) // Kubernetes' own types
			}
			a.kinds[path].objects = append(a.kinds[path].objects, data)
		}
	}
	for i := range manyNodes {
		name := fmt.Sprintf("node-%d", i)
		add("/api/v1/nodes", &corev1.Node{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: meta(name, ""),
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
		for n := range cardsOfNode {
			add("/apis/elasticgpu.io/v1alpha1/gpus", gpu(i, n, 0))
			if (i+n)%4 != 0 {
				pod := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: meta(podName(i, n), "team-0")}
				pod.Labels = map[string]string{"kueue.x-k8s.io/cluster-queue-name": fmt.Sprintf("queue-%d", (i+n)%manyQueues), "kueue.x-k8s.io/podset": "main"}
				add("/api/v1/pods", pod)
			}
		}
	}
	for i := range manyQueues {
		name := fmt.Sprintf("queue-%d", i)
		add("/apis/kueue.x-k8s.io/v1beta2/clusterqueues", &kueue.ClusterQueue{
			TypeMeta: metav1.TypeMeta{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "ClusterQueue"}, ObjectMeta: meta(name, ""),
			Spec: kueue.ClusterQueueSpec{CohortName: "all", ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{"nvidia.com/gpu"},
				Flavors:          []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{{Name: "nvidia.com/gpu", NominalQuota: resource.MustParse("800")}}}},
			}}},
		})
		add("/apis/kueue.x-k8s.io/v1beta2/localqueues", &kueue.LocalQueue{
			TypeMeta: metav1.TypeMeta{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "LocalQueue"}, ObjectMeta: meta("main", fmt.Sprintf("team-%d", i)),
			Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
		})
	}
	for i := range manyWorkloads {
		add("/apis/kueue.x-k8s.io/v1beta2/workloads", wl(i, 0))
	}
	return a
}

func meta(name, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, ResourceVersion: "1", CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))}
}

func podName(node, card int) string { return fmt.Sprintf("train-%d-%d", node, card) }

// gpu is a card; those of every fourth have no pod, and what they have changes with the version.
func gpu(node, index, version int) *egpu.GPU {
	g := &egpu.GPU{TypeMeta: metav1.TypeMeta{APIVersion: "elasticgpu.io/v1alpha1", Kind: "GPU"}, ObjectMeta: meta(fmt.Sprintf("node-%d-%d", node, index), "")}
	g.Spec = egpu.GPUSpec{NodeName: fmt.Sprintf("node-%d", node), Index: index, Model: "H100-80G", Memory: 81920}
	g.Status.State = egpu.GPUReady
	g.Status.Load = &egpu.GPULoad{Core: (node*7 + index*13 + version) % 101}
	if node == 0 && index == 1 {
		g.Status.Processes = []egpu.GPUProcess{
			{PID: 4711, Pod: "team-0/" + podName(node, index), Container: "main", Memory: 61440},
			{PID: 4712, Pod: "team-0/" + podName(node, index), Container: "main", Swapped: 16384},
		}
	}
	if (node+index)%4 != 0 {
		g.Status.Allocated = map[string]*egpu.PodResource{"team-0/" + podName(node, index): {Containers: []egpu.ContainerResource{{Resource: corev1.ResourceList{
			egpu.ResourceCore: resource.MustParse("100"), egpu.ResourceMemory: resource.MustParse("81920"),
		}}}}}
	}
	return g
}

func wl(i, version int) *kueue.Workload {
	w := &kueue.Workload{TypeMeta: metav1.TypeMeta{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "Workload"}, ObjectMeta: meta(fmt.Sprintf("job-train-%d", i), fmt.Sprintf("team-%d", i%manyQueues))}
	w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: fmt.Sprintf("train-%d", i)}}
	w.Spec.QueueName = "main"
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}},
	}}}}}}
	w.Status.Conditions = []metav1.Condition{{
		Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending", LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		Message: fmt.Sprintf("couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, %d more needed", 1+(i+version)%16),
	}}
	return w
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/change" {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		a.change(n, r.URL.Query().Get("lose"))
		return
	}
	if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":%q}}}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		return
	}
	kind := a.kinds[r.URL.Path]
	if kind == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		a.watch(w, r, kind)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	items := kind.objects
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit == 1 && len(items) > 1 {
		items = items[:1]
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": kind.version, "kind": kind.kind + "List", "metadata": map[string]string{"resourceVersion": "1"}, "items": append([]json.RawMessage{}, items...)})
}

func (a *api) watch(w http.ResponseWriter, r *http.Request, kind *listed) {
	events, who := make(chan change, 20_000), r.Header.Get("Authorization")
	a.mu.Lock()
	a.watchers[events] = r.URL.Path
	var first []json.RawMessage
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		first = append(first, kind.objects...)
		if a.readBy[who] == nil {
			a.readBy[who] = map[string]bool{}
		}
		a.readBy[who][r.URL.Path] = true
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.watchers, events)
		a.mu.Unlock()
	}()
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	for _, object := range first {
		for _, part := range [][]byte{[]byte(`{"type":"ADDED","object":`), object, []byte("}\n")} {
			_, _ = w.Write(part)
		}
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		_ = out.Encode(change{"BOOKMARK", map[string]any{"apiVersion": kind.version, "kind": kind.kind, "metadata": map[string]any{
			"resourceVersion": "1", "annotations": map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}})
	}
	_ = flush.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-events:
			if out.Encode(e) != nil {
				return
			}
			_ = flush.Flush()
		}
	}
}

// change so many objects, or have a node's first card become unhealthy.
func (a *api) change(n int, lose string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if lose != "" {
		node, _ := strconv.Atoi(lose)
		g := gpu(node, 0, 0)
		g.ResourceVersion, g.Status.State, g.Status.Message = "2", egpu.GPUUnhealthy, "XID 79"
		a.send("/apis/elasticgpu.io/v1alpha1/gpus", g)
	}
	for range n {
		a.changes++
		version := fmt.Sprint(a.changes + 2)
		if a.changes%2 == 0 {
			w := wl((a.changes*37)%manyWorkloads, a.changes)
			w.ResourceVersion = version
			a.send("/apis/kueue.x-k8s.io/v1beta2/workloads", w)
			continue
		}
		g := gpu((a.changes*7)%manyNodes, a.changes%cardsOfNode, a.changes)
		g.ResourceVersion = version
		a.send("/apis/elasticgpu.io/v1alpha1/gpus", g)
	}
}

func (a *api) send(path string, object any) {
	for events, at := range a.watchers {
		if at == path {
			events <- change{"MODIFIED", object}
		}
	}
}
