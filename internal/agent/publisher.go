package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/panics"
	"github.com/elastic-ai/elastic/internal/placement"
)

// nodeIndex finds the GPU objects of a node.
const nodeIndex = "spec.nodeName"

// refresh is how often cards are looked at again when nothing else asks.
const refresh = 10 * time.Second

// loadStep is the change of load, in percent, that is worth a write.
const loadStep = 10

// Publisher maintains a GPU object per card of the nodes its source serves.
type Publisher struct {
	Client client.Client
	Source discovery.Source
	// Events tell the pods of a card that it fails, and that it is well again.
	Events events.EventRecorder
	// Capacity is what the node offers for its cards; nil where another program writes it.
	Capacity func([]discovery.Card) corev1.ResourceList
	// Processes on a card, by its UUID; nil where nobody looks.
	Processes func(uuid string) []egpu.GPUProcess
	// AllocationPaths of the cards; nil where all are the GPU scheduler's.
	AllocationPaths *AllocationPaths
}

// IndexGPUs has GPU objects found by their node: by the publisher, and where containers come, also on a node without cards.
func IndexGPUs(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &egpu.GPU{}, nodeIndex, func(obj client.Object) []string {
		return []string{obj.(*egpu.GPU).Spec.NodeName}
	})
}

// SetupWithManager watches nodes and their GPU objects.
func (p *Publisher) SetupWithManager(mgr ctrl.Manager) error {
	ours := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		node, ok := obj.(*corev1.Node)
		return ok && p.Source.Serves(node)
	})
	publisher := ctrl.NewControllerManagedBy(mgr).Named("gpu-publisher").
		For(&corev1.Node{}, builder.WithPredicates(ours, predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, capacityChanged))).
		Owns(&egpu.GPU{}, builder.MatchEveryOwner)
	if p.Capacity != nil {
		publisher = publisher.Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodeOfPod), builder.WithPredicates(leftOrReturns))
	}
	if p.AllocationPaths != nil {
		publisher = publisher.WatchesRawSource(source.Channel(p.AllocationPaths.Changes, &handler.EnqueueRequestForObject{}))
	}
	return publisher.Complete(p)
}

// Reconcile brings the GPU objects of a node up to date. They are owned by the
// node, and go with it.
func (p *Publisher) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	node := &corev1.Node{}
	if err := p.Client.Get(ctx, request.NamespacedName, node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !p.Source.Serves(node) {
		return ctrl.Result{}, nil
	}
	cards, err := p.Source.Cards(ctx, node)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("looking at the cards of node %s: %w", node.Name, err)
	}
	known := &egpu.GPUList{}
	if err := p.Client.List(ctx, known, client.MatchingFields{nodeIndex: node.Name}); err != nil {
		return ctrl.Result{}, err
	}
	if p.AllocationPaths != nil {
		if err := p.AllocationPaths.choose(ctx, node, cards, known.Items); err != nil {
			return ctrl.Result{}, err
		}
	}
	if p.Capacity != nil && !served(node) {
		for i := range cards {
			if cards[i].Elsewhere == "" {
				cards[i].Problem = cmp.Or(cards[i].Problem, notServed)
			}
		}
	}
	stale := map[string]*egpu.GPU{}
	for i := range known.Items {
		stale[known.Items[i].Name] = &known.Items[i]
	}
	for _, card := range cards {
		name := objectName(node.Name, card.Index)
		err := panics.Contain(ctrl.LoggerFrom(ctx), "publish", name, func() error { return p.bring(ctx, p.object(node, card), stale[name]) })
		if err != nil && !panics.Is(err) {
			return ctrl.Result{}, fmt.Errorf("GPU %s: %w", name, err)
		}
		delete(stale, name) // also what a defect concerns is left as it is
	}
	for _, gone := range stale {
		if err := p.Client.Delete(ctx, gone); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	if p.Capacity != nil {
		list := p.Capacity(cards)
		if err := p.addSwappedOut(ctx, node, list); err != nil {
			return ctrl.Result{}, err
		}
		if err := offer(ctx, p.Client, node, list); err != nil {
			return ctrl.Result{}, fmt.Errorf("capacity of node %s: %w", node.Name, err)
		}
	}
	return ctrl.Result{RequeueAfter: refresh}, nil
}

// object of a card, with what runs on it.
func (p *Publisher) object(node *corev1.Node, card discovery.Card) *egpu.GPU {
	gpu := Object(node, card)
	if p.Processes == nil {
		return gpu
	}
	for _, process := range p.Processes(card.UUID) {
		process.Swapped = min(process.Swapped, card.MemoryMB) // as its tenant says
		gpu.Status.Processes = append(gpu.Status.Processes, process)
	}
	return gpu
}

// bring makes the object in the cluster what the card is, with as few writes
// as that takes.
func (p *Publisher) bring(ctx context.Context, want, have *egpu.GPU) error {
	if have == nil {
		created := want.DeepCopy()
		if err := p.Client.Create(ctx, created); err != nil {
			return err
		}
		have = created
	} else if !equality.Semantic.DeepEqual(have.Spec, want.Spec) {
		changed := have.DeepCopy()
		changed.Spec = want.Spec
		if err := p.Client.Patch(ctx, changed, client.MergeFrom(have)); err != nil {
			return err
		}
		have = changed
	}
	if sameStatus(have.Status, want.Status) && sameProcesses(have.Status.Processes, want.Status.Processes, want.Spec.Memory) {
		return nil
	}
	changed := have.DeepCopy()
	allocated := changed.Status.Allocated // written by the scheduler
	changed.Status = want.Status
	changed.Status.Allocated = allocated
	if err := p.Client.Status().Patch(ctx, changed, client.MergeFrom(have)); err != nil {
		return err
	}
	// That the agent has just been started is worth no event.
	quiet := have.Status.State == "" || have.Status.State == egpu.GPUByClaim || want.Status.State == egpu.GPUByClaim || have.Status.Message == notServed || want.Status.Message == notServed
	if p.Events != nil && !quiet && have.Status.State != want.Status.State {
		p.notifyPods(ctx, changed)
	}
	return nil
}

// notifyPods that have the card of its new state.
func (p *Publisher) notifyPods(ctx context.Context, gpu *egpu.GPU) {
	kind, reason, note := corev1.EventTypeNormal, "GPUReady", "card %s is well again%s"
	problem := ""
	if gpu.Status.State == egpu.GPUUnhealthy {
		kind, reason, note, problem = corev1.EventTypeWarning, "GPUUnhealthy", "card %s must not be used: %s", gpu.Status.Message
	}
	p.Events.Eventf(gpu, nil, kind, reason, "Watch", note, gpu.Name, problem)
	for _, user := range gpu.Status.Allocated {
		pod := &corev1.Pod{}
		if p.Client.Get(ctx, client.ObjectKey{Namespace: user.Namespace, Name: user.Pod}, pod) == nil {
			p.Events.Eventf(pod, gpu, kind, reason, "Watch", note, gpu.Name, problem)
		}
	}
}

// sameStatus ignores which pods have the card, what runs on it, and small changes of load.
func sameStatus(have, want egpu.GPUStatus) bool {
	if (have.Load == nil) != (want.Load == nil) {
		return false
	}
	if have.Load != nil && (far(have.Load.Core, want.Load.Core) || far(have.Load.Memory, want.Load.Memory)) {
		return false
	}
	have.Load, want.Load = nil, nil
	have.Allocated, want.Allocated = nil, nil
	have.Processes, want.Processes = nil, nil
	return equality.Semantic.DeepEqual(have, want)
}

func far(a, b int) bool { return max(a-b, b-a) >= loadStep }

// objectName of a card.
func objectName(node string, index int) string { return fmt.Sprintf("%s-%d", node, index) }

// Object is the GPU object of a card.
func Object(node *corev1.Node, card discovery.Card) *egpu.GPU {
	gpu := &egpu.GPU{
		ObjectMeta: metav1.ObjectMeta{
			Name: objectName(node.Name, card.Index),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
			}},
		},
		Spec: egpu.GPUSpec{
			Index: card.Index, UUID: card.UUID, Model: card.Model, Path: card.Path,
			Memory: card.MemoryMB, NodeName: node.Name, NUMA: max(card.NUMA, 0),
			TFLOPS: int64(placement.Rating(card.Model)),
		},
		Status: egpu.GPUStatus{State: egpu.GPUReady, Message: card.Problem},
	}
	for _, link := range card.Links {
		gpu.Spec.Links = append(gpu.Spec.Links, egpu.GPULink{To: link.To, Bandwidth: link.Bandwidth, Kind: link.Kind})
	}
	gpu.Status.Capacity = corev1.ResourceList{
		"elasticgpu.io/gpu-core":   *resource.NewQuantity(100, resource.DecimalSI),
		"elasticgpu.io/gpu-memory": *resource.NewQuantity(card.MemoryMB, resource.DecimalSI),
	}
	gpu.Status.Allocatable = gpu.Status.Capacity
	switch {
	case card.Problem != "":
		gpu.Status.State = egpu.GPUUnhealthy
		gpu.Status.Allocatable = nil
	case card.Elsewhere != "":
		gpu.Status.State, gpu.Status.Message = egpu.GPUByClaim, card.Elsewhere
		gpu.Status.Allocatable = nil
	}
	if card.Load != nil && card.Load.Core != discovery.Unknown {
		gpu.Status.Load = &egpu.GPULoad{Core: card.Load.Core, Memory: card.Load.Memory, Power: card.Load.Power}
	}
	for _, i := range card.Instances {
		gpu.Status.Instances = append(gpu.Status.Instances, egpu.GPUInstance{UUID: i.UUID, Profile: i.Profile, Start: i.Start})
	}
	return gpu
}
