package clouds

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/elastic-ai/elastic/sandbox/internal/kubelet"
	"github.com/elastic-ai/elastic/sandbox/internal/nodespec"
)

//go:embed crds/*.yaml
var crdFiles embed.FS

// Provider plays all clouds of a sandbox.
type Provider struct {
	objects  dynamic.Interface
	client   kubernetes.Interface
	kubelets *kubelet.Kubelets
	queue    workqueue.TypedRateLimitingInterface[string]
	cancel   context.CancelFunc
	done     chan struct{}
}

// Start serves the kinds and begins to sell. It returns when NodeClaims can be made.
func Start(ctx context.Context, config *rest.Config, kubelets *kubelet.Kubelets) (*Provider, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if err := serve(ctx, objects); err != nil {
		return nil, err
	}
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &Provider{
		objects: objects, client: client, kubelets: kubelets, cancel: cancel, done: make(chan struct{}),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	if err := p.watch(ctx, working); err != nil {
		cancel()
		return nil, err
	}
	go p.run(working)
	return p, nil
}

// Stop ends it. Machines stay as they are.
func (p *Provider) Stop() {
	p.cancel()
	<-p.done
}

// serve has the API server serve the kinds, and waits until it does.
func serve(ctx context.Context, objects dynamic.Interface) error {
	entries, err := crdFiles.ReadDir("crds")
	if err != nil {
		return err
	}
	crds := objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, entry := range entries {
		data, err := crdFiles.ReadFile("crds/" + entry.Name())
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &crd.Object); err != nil {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
		if _, err := crds.Apply(ctx, crd.GetName(), crd, metav1.ApplyOptions{FieldManager: "elastic-sandbox", Force: true}); err != nil {
			return err
		}
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for _, kind := range []schema.GroupVersionResource{claims, sold} {
		for {
			_, err := objects.Resource(kind).List(ctx, metav1.ListOptions{Limit: 1})
			if err == nil {
				break
			}
			if !apierrors.IsNotFound(err) {
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s is not served: %w", kind.Resource, context.Cause(ctx))
			case <-tick.C:
			}
		}
	}
	return nil
}

// watch looks at NodeClaims, and at nodes, which have their names.
func (p *Provider) watch(starting, working context.Context) error {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(p.objects, 0)
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    p.changed,
		UpdateFunc: func(_, obj any) { p.changed(obj) },
		DeleteFunc: p.changed,
	}
	if _, err := factory.ForResource(claims).Informer().AddEventHandler(handler); err != nil {
		return err
	}
	machines := cache.FilteringResourceEventHandler{Handler: handler, FilterFunc: func(obj any) bool {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		return isMachine(obj.(*corev1.Node))
	}}
	if err := p.kubelets.OnNode(machines); err != nil {
		return err
	}
	factory.Start(working.Done())
	for kind, synced := range factory.WaitForCacheSync(starting.Done()) {
		if !synced {
			return fmt.Errorf("no %s from the API server", kind.Resource)
		}
	}
	return nil
}

func (p *Provider) changed(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	p.queue.Add(obj.(metav1.Object).GetName())
}

// run works until the context ends.
func (p *Provider) run(ctx context.Context) {
	defer close(p.done)
	stop := context.AfterFunc(ctx, p.queue.ShutDown)
	defer stop()
	for p.work(ctx) {
	}
}

func (p *Provider) work(ctx context.Context) bool {
	name, quit := p.queue.Get()
	if quit {
		return false
	}
	defer p.queue.Done(name)
	again, err := p.sync(ctx, name)
	switch {
	case ctx.Err() != nil:
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		p.queue.AddAfter(name, 100*time.Millisecond)
	case err != nil:
		klog.FromContext(ctx).Error(err, "Simulated cloud", "nodeClaim", name)
		p.queue.AddRateLimited(name)
	default:
		p.queue.Forget(name)
		if again > 0 {
			p.queue.AddAfter(name, again)
		}
	}
	return true
}

// sync takes the next step for a NodeClaim. All is read from the API server itself: machines cost money.
func (p *Provider) sync(ctx context.Context, name string) (time.Duration, error) {
	object, err := p.objects.Resource(claims).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, p.orphan(ctx, name)
	}
	if err != nil {
		return 0, err
	}
	claim := &nodeClaim{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, claim); err != nil || !claim.ours() {
		return 0, err
	}
	from, err := p.cloud(ctx, claim.Spec.NodeClassRef.Name)
	if err != nil {
		return 0, err
	}
	node, err := p.node(ctx, name)
	if err != nil {
		return 0, err
	}
	if node != nil && node.Spec.ProviderID != providerID(claim) {
		return 0, fmt.Errorf("there is a node %s that is none of a simulated cloud", name) // and it stays
	}
	step := next(claim, from, node, time.Now())
	return step.again, p.carryOut(ctx, step.do, object, claim, from)
}

// orphan ends a machine whose NodeClaim is gone, as by somebody who has taken its finalizer away.
func (p *Provider) orphan(ctx context.Context, name string) error {
	node, err := p.node(ctx, name)
	if err != nil || node == nil || !isMachine(node) {
		return err
	}
	return p.end(ctx, name)
}

// cloud is nil where there is none of that name.
func (p *Provider) cloud(ctx context.Context, name string) (*cloud, error) {
	object, err := p.objects.Resource(sold).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &cloud{}
	return s, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, s)
}

// node is nil where there is none of that name.
func (p *Provider) node(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := p.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return node, err
}

func (p *Provider) carryOut(ctx context.Context, do action, object *unstructured.Unstructured, claim *nodeClaim, from *cloud) error {
	switch do {
	case hold:
		return p.finalize(ctx, object, append(slices.Clone(claim.Finalizers), termination))
	case release:
		if err := p.end(ctx, claim.Name); err != nil { // pods of a node that somebody deleted are there for a while
			return err
		}
		return p.finalize(ctx, object, slices.DeleteFunc(slices.Clone(claim.Finalizers), func(f string) bool { return f == termination }))
	case launch:
		return p.say(ctx, object, claim, "", launched)
	case appear:
		return p.appear(ctx, claim, from)
	case register:
		return p.say(ctx, object, claim, claim.Name, registered, initialized)
	case giveUp:
		uid := claim.UID
		return p.objects.Resource(claims).Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	case end:
		return p.end(ctx, claim.Name)
	}
	return nil
}

// finalize writes the finalizers of a NodeClaim, unless it has changed since.
func (p *Provider) finalize(ctx context.Context, object *unstructured.Unstructured, finalizers []string) error {
	object.SetFinalizers(finalizers)
	_, err := p.objects.Resource(claims).Update(ctx, object, metav1.UpdateOptions{})
	return err
}

// say writes conditions that have come true into the status of a NodeClaim, and the name of its node.
func (p *Provider) say(ctx context.Context, object *unstructured.Unstructured, claim *nodeClaim, node string, come ...string) error {
	list := claim.Status.Conditions
	for _, condition := range come {
		apimeta.SetStatusCondition(&list, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition, ObservedGeneration: claim.Generation})
	}
	written := make([]any, 0, len(list))
	for i := range list {
		condition, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&list[i])
		if err != nil {
			return err
		}
		written = append(written, condition)
	}
	set := func(value any, name string) error {
		return unstructured.SetNestedField(object.Object, value, "status", name)
	}
	err := errors.Join(set(written, "conditions"), set(providerID(claim), "providerID"))
	if node != "" {
		err = errors.Join(err, set(node, "nodeName"))
	}
	if err != nil {
		return err
	}
	_, err = p.objects.Resource(claims).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return err
}

// providerScheme begins the provider IDs of nodes that are machines of simulated clouds. A node's ID cannot be changed.
const providerScheme = "sandbox://"

func providerID(claim *nodeClaim) string {
	return providerScheme + claim.Spec.NodeClassRef.Name + "/" + claim.Name
}

func isMachine(node *corev1.Node) bool {
	return strings.HasPrefix(node.Spec.ProviderID, providerScheme)
}

// appear makes the node of a machine that has started.
func (p *Provider) appear(ctx context.Context, claim *nodeClaim, from *cloud) error {
	wants := claim.wants()
	m := from.machine(wants[corev1.LabelInstanceTypeStable])
	if m == nil { // it sells no such machines any more, and this one never came
		return p.carryOut(ctx, giveUp, nil, claim, from)
	}
	spec := nodespec.Node{Name: claim.Name, Pool: from.Name, Cards: m.Cards}
	if m.Cards > 0 {
		model, err := nodespec.ParseModel(m.Model)
		if err != nil {
			return err
		}
		spec.Model = model
	}
	return p.kubelets.Join(ctx, spec, func(node *corev1.Node) {
		delete(node.Labels, "elasticai.io/rack") // nobody knows which it stands in
		maps.Copy(node.Labels, claim.Labels)
		maps.Copy(node.Labels, wants)
		node.Labels[cloudLabel] = from.Name
		node.Spec.ProviderID, node.Spec.Taints = providerID(claim), claim.Spec.Taints
	})
}

// end deletes the pods of a machine, and then its node.
func (p *Provider) end(ctx context.Context, name string) error {
	on := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()}
	pods, err := p.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, on)
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if err := p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return p.kubelets.Leave(ctx, name)
}
