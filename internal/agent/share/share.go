package share

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Share is what one container has.
type Share struct {
	// ID names the share on its node while the container has it.
	ID        string
	Pod       types.NamespacedName
	UID       types.UID
	Container string
	Cards     []Card
	// Parameters of the claim's class; for resources asked for directly, that it is to be swapped if it is.
	Parameters map[string]string
	// Paths of a device that was made for the claim (qGPU).
	Paths []string
	// Device is the ElasticGPU of the container's claim; containers with one Device share its piece of the card.
	Device string `json:",omitempty"`
	// Claim is the ResourceClaim that it was prepared for; nil where the scheduler chose the cards.
	Claim *Claim `json:",omitempty"`
	// Remote is set where the cards are those of another node; Cards has none then.
	Remote *Remote `json:",omitempty"`
	// Serves is the ElasticGPUClaim whose programs, on other nodes, use the cards through this container.
	Serves types.UID `json:",omitempty"`
}

// Remote is how a container reaches cards of another node.
type Remote struct {
	// Claim is the ElasticGPUClaim, Device its ElasticGPU, Engine what carries calls there.
	Claim          types.UID
	Device, Engine string
}

// Claim is a ResourceClaim.
type Claim struct {
	types.NamespacedName
	UID types.UID
}

// Card of a share, and how much of it.
type Card struct {
	discovery.Card
	// Percent of its compute, 1 to 100.
	Percent float64
	// MemoryMB of its memory.
	MemoryMB int64
	// Reserved is what of it no other container may be given. What is not asked for is not limited, and not reserved.
	Reserved Reserved
	// Recorded are the pods, by UID, and the ElasticGPUs, by name, that have a part of the card now, as the scheduler
	// recorded it.
	Recorded map[string]bool `json:"-"`
	// Instance is the part of it that was chosen already; nil leaves the choice to the backend.
	Instance *Instance `json:",omitempty"`
}

// Reserved is a part of a card, in percent and MiB.
type Reserved struct {
	Percent  float64
	MemoryMB int64
}

// Instance is a MIG profile at its place on a card.
type Instance struct {
	Profile string
	Start   uint32
}

// Whole says whether all of every card is the container's.
func (s *Share) Whole() bool {
	return !slices.ContainsFunc(s.Cards, func(c Card) bool { return c.Percent < 100 || c.MemoryMB < c.Card.MemoryMB })
}

// leastIdle is what a class may say at least: a program that computes in between leaves the card alone for moments.
const leastIdle = time.Second

// IdleAfter is how long the container may leave its cards unused before it is swapped out, by its class; 0 is for ever.
func (s *Share) IdleAfter() (time.Duration, error) {
	text := s.Parameters["idle"]
	if text == "" {
		return 0, nil
	}
	after, err := time.ParseDuration(text)
	if err != nil || after < leastIdle {
		return 0, fmt.Errorf("the class's parameter idle is %q: write a time of a second or more, as 10m", text)
	}
	return after, nil
}

// Resolver finds shares. Client reads claims and what they are bound to.
type Resolver struct {
	Client client.Reader
	// ServerNamespace is where pods serve cards to other nodes; no tenant makes pods there. Empty: none do.
	ServerNamespace string
}

// Of is the share of a container, by the node's GPU objects or by the ElasticGPU of its claim. What the pod itself
// says of its cards is for people: its author can write it. A *NoRecord says that the scheduler has recorded none.
func (r *Resolver) Of(ctx context.Context, pod *corev1.Pod, container string, cards []discovery.Card, gpus []egpu.GPU) (Share, error) {
	s := Share{Pod: client.ObjectKeyFromObject(pod), UID: pod.UID, Container: container}
	asked, device, err := r.asked(ctx, pod, container, &s)
	if err != nil {
		return s, fmt.Errorf("container %s of pod %s: %w", container, s.Pod, err)
	}
	if s.Remote != nil {
		return s, nil // no card of this node
	}
	var indexes []int
	if device != nil {
		indexes, err = cardsOf(device, pod.Spec.NodeName, gpus)
	} else {
		indexes, err = recorded(pod, container, asked, gpus)
	}
	if err != nil {
		return s, fmt.Errorf("container %s of pod %s: %w", container, s.Pod, err)
	}
	for _, index := range indexes {
		at := slices.IndexFunc(cards, func(c discovery.Card) bool { return c.Index == index })
		if at < 0 {
			return s, fmt.Errorf("container %s of pod %s was given card %d, and this node has none of that index", container, s.Pod, index)
		}
		card, err := part(cards[at], asked)
		if err != nil {
			return s, fmt.Errorf("container %s of pod %s: %w", container, s.Pod, err)
		}
		card.Recorded = recordedOn(gpus, index)
		s.Cards = append(s.Cards, card)
	}
	return s, nil
}

// part of a card that a request is worth. What is not asked for is not limited.
func part(card discovery.Card, asked placement.CardRequest) (Card, error) {
	c := Card{Card: card, Percent: 100, MemoryMB: card.MemoryMB}
	if asked.Exclusive {
		c.Reserved = Reserved{Percent: 100, MemoryMB: card.MemoryMB}
		return c, nil
	}
	if asked.Core > 0 {
		c.Percent = float64(asked.Core) / 10
		c.Reserved.Percent = c.Percent
	}
	if asked.TFLOPS > 0 {
		rating := placement.Rating(card.Model)
		if rating == 0 {
			return c, fmt.Errorf("%g TFLOPS of a %q, whose rating is not known", asked.TFLOPS, card.Model)
		}
		c.Percent = min(math.Ceil(1000*asked.TFLOPS/rating)/10, 100)
		c.Reserved.Percent = c.Percent
	}
	if asked.Memory > 0 {
		c.MemoryMB = asked.Memory
		c.Reserved.MemoryMB = asked.Memory
	}
	if c.MemoryMB > card.MemoryMB || c.Percent > 100 {
		return c, fmt.Errorf("it asks for %g percent and %d MiB of card %d, which has %d MiB", c.Percent, c.MemoryMB, card.Index, card.MemoryMB)
	}
	return c, nil
}

// asked is what the container asks for itself, or by its claim, which has a device.
func (r *Resolver) asked(ctx context.Context, pod *corev1.Pod, container string, s *Share) (placement.CardRequest, *egpu.ElasticGPU, error) {
	if name := pod.Annotations[egpu.ServesAnnotation]; name != "" && pod.Namespace == r.ServerNamespace && pod.Name == request.ServerName(name) {
		return r.served(ctx, name, s)
	}
	for _, group := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range group {
			if group[i].Name != container {
				continue
			}
			if asked, err := request.Container(&group[i], nil); err != nil || asked.Count > 0 {
				if pod.Annotations[egpu.OnPreemptionAnnotation] == egpu.OnPreemptionSwap {
					s.Parameters = map[string]string{"swap": "on"}
				}
				return asked, nil, err
			}
		}
	}
	for _, use := range request.Uses(pod) {
		if use.Container == container {
			return r.claimed(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: use.Claim}, s)
		}
	}
	return placement.CardRequest{}, nil, errors.New("it asks for no cards")
}

// sharedAs are the parameters of a class with the way in which the scheduler has given out the card: it was chosen for
// that, and the class may say otherwise by now.
func sharedAs(device *egpu.ElasticGPU, parameters map[string]string) map[string]string {
	sharing := device.Annotations[egpu.SharingAnnotation]
	if parameters["sharing"] == sharing || parameters["backend"] == "mps" {
		return parameters
	}
	now := maps.Clone(parameters)
	if now == nil {
		now = map[string]string{}
	}
	now["sharing"] = sharing
	return now
}

func (r *Resolver) claimed(ctx context.Context, key client.ObjectKey, s *Share) (placement.CardRequest, *egpu.ElasticGPU, error) {
	claim, device, class := &egpu.ElasticGPUClaim{}, &egpu.ElasticGPU{}, &egpu.ElasticGPUClass{}
	fail := func(err error) (placement.CardRequest, *egpu.ElasticGPU, error) {
		return placement.CardRequest{}, nil, fmt.Errorf("claim %s: %w", key.Name, err)
	}
	if err := r.Client.Get(ctx, key, claim); err != nil {
		return fail(err)
	}
	if claim.Spec.ElasticGPUName == "" {
		return fail(errors.New("it has no ElasticGPU"))
	}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.ElasticGPUName}, device); err != nil {
		return fail(err)
	}
	if err := request.CheckBinding(claim, device); err != nil {
		return fail(err)
	}
	if name := claim.ClassName(); name != "" {
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, class); client.IgnoreNotFound(err) != nil {
			return fail(err)
		}
		s.Parameters = sharedAs(device, class.Parameters)
	}
	if device.Spec.QGPU != nil {
		s.Paths = device.Spec.QGPU.Paths
	}
	s.Device = device.Name
	if request.IsServed(device) {
		s.Remote = &Remote{Claim: claim.UID, Device: device.Name, Engine: request.Engine(class.Parameters)}
	}
	asked, err := request.List(device.Spec.Capacity, request.Share)
	if err != nil {
		return fail(fmt.Errorf("ElasticGPU %s: %w", device.Name, err))
	}
	return asked, device, nil
}

// served is what a server has that carries out calls for a claim: the claim's share.
func (r *Resolver) served(ctx context.Context, name string, s *Share) (placement.CardRequest, *egpu.ElasticGPU, error) {
	device, class := &egpu.ElasticGPU{}, &egpu.ElasticGPUClass{}
	fail := func(err error) (placement.CardRequest, *egpu.ElasticGPU, error) {
		return placement.CardRequest{}, nil, fmt.Errorf("ElasticGPU %s: %w", name, err)
	}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, device); err != nil {
		return fail(err)
	}
	if device.Spec.ClaimRef == nil || device.Spec.ClaimRef.UID == "" || !request.IsServed(device) {
		return fail(errors.New("no claim uses it from another node"))
	}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: device.Spec.ElasticGPUClassName}, class); client.IgnoreNotFound(err) != nil {
		return fail(err)
	}
	s.Parameters, s.Device, s.Serves = sharedAs(device, class.Parameters), name, device.Spec.ClaimRef.UID
	asked, err := request.List(device.Spec.Capacity, request.Share)
	if err != nil {
		return fail(err)
	}
	return asked, device, nil
}
