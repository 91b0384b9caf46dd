package gpu_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu"
	"github.com/elastic-ai/elastic/internal/gpu/extender"
	"github.com/elastic-ai/elastic/internal/placement"
)

// world is a shell with an API server of objects in memory, and the extender in front of it.
type world struct {
	testing.TB
	*gpu.Shell
	client  client.Client
	url     string
	hooks   map[string]*gpu.Hook
	now     func() time.Time
	events  events.EventRecorder
	follows bool // it does not lead at first
	late    bool // its cache has no pods yet
	// versions: lists have one, as an API server's.
	versions bool
	// onBind, where set, stands between a Binding and the API server.
	onBind func(pod client.ObjectKey, write func() error) error
}

func newWorld(t testing.TB, options placement.Options) *world {
	t.Helper()
	w := &world{TB: t}
	w.start(t, options)
	return w
}

func (w *world) start(t testing.TB, options placement.Options) {
	t.Helper()
	w.client = fake.NewClientBuilder().WithScheme(scheme(t)).
		WithStatusSubresource(&egpu.ElasticGPU{}, &egpu.ElasticGPUClaim{}, &egpu.GPU{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceCreate: w.bind, List: w.list}).Build()
	shell, err := gpu.New(gpu.Options{
		Client: cache{w.client, w}, Direct: w.client, Engine: options, Queue: true, Hooks: w.hooks, Hold: time.Hour, Now: w.now, Log: logr.Discard(), Events: w.events,
		ServerNamespace: "system",
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Shell = shell
	if w.follows {
		shell.FollowForTest(t.Context())
	} else {
		shell.RunForTest(t.Context())
	}
	server := httptest.NewServer(extender.NewHandler(shell, extender.NewMetrics(prometheus.NewRegistry()), logr.Discard()))
	t.Cleanup(server.Close)
	w.url = server.URL
}

// cache is the shell's cache of pods, which may be late.
type cache struct {
	client.Client
	w *world
}

func (c cache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, pod := obj.(*corev1.Pod); pod && c.w.late {
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}
	return c.Client.Get(ctx, key, obj, opts...)
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, egpu.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (w *world) list(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	err := c.List(ctx, list, opts...)
	if w.versions {
		list.SetResourceVersion("1000")
	}
	return err
}

// bind does what the API server does with a Binding: node, annotations and labels at once.
func (w *world) bind(ctx context.Context, c client.Client, name string, object, sub client.Object, _ ...client.SubResourceCreateOption) error {
	b, ok := sub.(*corev1.Binding)
	if !ok || name != "binding" {
		return fmt.Errorf("unexpected subresource %s", name)
	}
	key := client.ObjectKeyFromObject(object)
	write := func() error {
		pod := &corev1.Pod{}
		if err := c.Get(ctx, key, pod); err != nil {
			return err
		}
		if pod.Spec.NodeName != "" || b.ResourceVersion != "" && b.ResourceVersion != pod.ResourceVersion {
			return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("it is on node %q, at version %s", pod.Spec.NodeName, pod.ResourceVersion))
		}
		pod.Spec.NodeName = b.Target.Name
		for k, v := range b.Annotations {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
		}
		for k, v := range b.Labels {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, k, v)
		}
		return c.Update(ctx, pod)
	}
	if w.onBind != nil {
		return w.onBind(key, write)
	}
	return write()
}

// add objects to the API server and to the shell's knowledge.
func (w *world) add(objects ...client.Object) {
	w.Helper()
	for _, object := range objects {
		if err := w.client.Create(context.Background(), object); err != nil {
			w.Fatal(err)
		}
	}
	w.Feed(false, objects...)
}

// get an object as the API server has it.
func get[T client.Object](w *world, object T) T {
	w.Helper()
	if err := w.client.Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
		w.Fatal(err)
	}
	return object
}

// post a message to the extender and read the answer.
func post[R any](w *world, path string, args any) R {
	w.Helper()
	body, err := json.Marshal(args)
	if err != nil {
		w.Fatal(err)
	}
	response, err := http.Post(w.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		w.Fatalf("%s: %s: %s, %v", path, response.Status, data, err)
	}
	var result R
	if err := json.Unmarshal(data, &result); err != nil {
		w.Fatalf("%s: %v", data, err)
	}
	return result
}

// The messages as kube-scheduler writes and reads them.
type (
	args struct {
		Pod       *corev1.Pod
		NodeNames *[]string
	}
	filterResult struct {
		NodeNames                               *[]string
		FailedNodes, FailedAndUnresolvableNodes map[string]string
		Error                                   string
	}
	hostPriority struct {
		Host  string
		Score int64
	}
	bindArgs struct {
		PodName, PodNamespace string
		PodUID                types.UID
		Node                  string
	}
	bindResult struct{ Error string }
)

func (w *world) filter(pod *corev1.Pod, nodes ...string) filterResult {
	w.Helper()
	return post[filterResult](w, "/scheduler/filter", args{pod, &nodes})
}

func (w *world) score(pod *corev1.Pod, nodes ...string) map[string]int64 {
	w.Helper()
	scores := map[string]int64{}
	for _, p := range post[[]hostPriority](w, "/scheduler/priorities", args{pod, &nodes}) {
		scores[p.Host] = p.Score
	}
	return scores
}

func (w *world) bindTo(pod *corev1.Pod, node string) error {
	w.Helper()
	result := post[bindResult](w, "/scheduler/bind", bindArgs{pod.Name, pod.Namespace, pod.UID, node})
	if result.Error != "" {
		return fmt.Errorf("%s", result.Error)
	}
	return nil
}

func (w *world) mustBind(pod *corev1.Pod, node string) {
	w.Helper()
	if err := w.bindTo(pod, node); err != nil {
		w.Fatal(err)
	}
}

// card of a node, as the status shows it.
func (w *world) card(node string, index int) gpu.CardStatus {
	w.Helper()
	response, err := http.Get(w.url + "/scheduler/status")
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var nodes []gpu.NodeStatus
	if err := json.NewDecoder(response.Body).Decode(&nodes); err != nil {
		w.Fatal(err)
	}
	for _, n := range nodes {
		if n.Name == node {
			for _, c := range n.Cards {
				if c.Index == index {
					return c
				}
			}
		}
	}
	w.Fatalf("no card %d on node %s: %v", index, node, nodes)
	return gpu.CardStatus{}
}

func quantity(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// node with cards, as a cluster without agents describes it.
func node(name string, cards int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{egpu.ModelLabel: "T4", "nvidia.com/gpu.memory": "16000"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			"cpu": quantity(64), "memory": resource.MustParse("256Gi"), "pods": quantity(110), egpu.ResourceWhole: quantity(cards),
		}},
	}
}

// pod with one container that asks for this much of this.
func pod(name string, what corev1.ResourceName, much int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{what: quantity(much)}},
		}}},
	}
}

func share(name string, core int) *corev1.Pod { return pod(name, egpu.ResourceCore, core) }

// gpuObject is a card as an agent describes it.
func gpuObject(node string, index int, model string, memory int64) *egpu.GPU {
	return &egpu.GPU{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-gpu" + strconv.Itoa(index)},
		Spec:       egpu.GPUSpec{NodeName: node, Index: index, Model: model, Memory: memory},
	}
}
