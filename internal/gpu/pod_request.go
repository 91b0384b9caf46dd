package gpu

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/claims"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Refused says why no node can take a pod, where the reason is not about the nodes.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

// podRequest is a pod with all that its placement depends on.
type podRequest struct {
	pod  *corev1.Pod
	ask  placement.Pod // what it requests, claims without a device included
	gang gang
	all  *placement.Gang // the gang's pods, where there are several
	// bound are the claims with a device, by container; the unbound ones get theirs on the node the pod
	// goes to.
	bound   []boundClaim
	unbound []unboundClaim
}

type boundClaim struct {
	container string
	device    *egpu.ElasticGPU
}

type unboundClaim struct {
	container string
	claim     *egpu.ElasticGPUClaim
	class     *egpu.ElasticGPUClass
	cards     placement.CardRequest
	// levels within which the cards are, where they are used over the network; nil: they are on the pod's node.
	levels []string
}

// Asks says whether a pod requests cards, by itself or by a claim. Its request may still be wrong.
func (s *Shell) Asks(pod *corev1.Pod) bool {
	ask, err := request.Pod(pod, s.options.Modes)
	return err != nil || len(ask.Containers) > 0 || len(request.Uses(pod)) > 0
}

// readRequest reads everything a pod's placement depends on. A *Refused says why it has none now.
func (s *Shell) readRequest(ctx context.Context, pod *corev1.Pod) (*podRequest, error) {
	w := &podRequest{pod: pod, gang: gangOf(pod)}
	var err error
	if w.ask, err = request.Pod(pod, s.options.Modes); err != nil {
		return nil, &Refused{Reason: err.Error()}
	}
	w.gang.tie(&w.ask)
	for _, use := range request.Uses(pod) {
		if err := s.use(ctx, w, use); err != nil {
			return nil, err
		}
	}
	if w.gang.key != "" {
		if w.all, err = s.wholeGang(ctx, w.gang, w.ask); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// use of a claim by the pod: where its device is, or what it asks of the node.
func (s *Shell) use(ctx context.Context, w *podRequest, use request.Use) error {
	refuse := func(format string, args ...any) error {
		return &Refused{Reason: fmt.Sprintf("claim %s: ", use.Claim) + fmt.Sprintf(format, args...)}
	}
	if slices.ContainsFunc(w.ask.Containers, func(c placement.Container) bool { return c.Name == use.Container }) {
		return refuse("container %s asks for cards itself: use the claim or the resources, not both", use.Container)
	}
	claim := &egpu.ElasticGPUClaim{}
	err := s.options.Client.Get(ctx, client.ObjectKey{Namespace: w.pod.Namespace, Name: use.Claim}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return refuse("there is none of that name in namespace %s", w.pod.Namespace)
	case err != nil:
		return err
	case claim.DeletionTimestamp != nil:
		return refuse("it is being deleted")
	}
	if claim.Status.Phase == egpu.ClaimBound {
		return s.useBound(ctx, w, use.Container, claim, refuse)
	}
	if name := claim.Spec.ElasticGPUName; name != "" {
		return refuse("it does not have the ElasticGPU %s that it names: %s", name, claim.Status.Message)
	}
	class := &egpu.ElasticGPUClass{}
	if name := claim.ClassName(); name != "" {
		if err := s.options.Client.Get(ctx, client.ObjectKey{Name: name}, class); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if class.EGPUBindingMode != egpu.BindWaitForFirstConsumer {
		return refuse("it has no ElasticGPU yet: %s", claim.Status.Message)
	}
	if slices.ContainsFunc(w.unbound, func(l unboundClaim) bool { return l.claim.Name == claim.Name }) {
		return nil
	}
	cards, err := claims.Cards(claim, class)
	if err != nil {
		return refuse("%v", err)
	}
	levels, err := claims.Levels(class)
	if err != nil {
		return refuse("%v", err)
	}
	w.unbound = append(w.unbound, unboundClaim{use.Container, claim, class, cards, levels})
	if levels != nil {
		w.connect()
	}
	if claims.InTree(class.Provisioner) && levels == nil {
		w.ask.Containers = append(w.ask.Containers, placement.Container{Name: egpu.ClaimPrefix + claim.Name, Cards: cards})
	}
	return nil
}

// useBound is the use of a claim that has its device: the pod goes where that can be reached.
func (s *Shell) useBound(ctx context.Context, w *podRequest, container string, claim *egpu.ElasticGPUClaim, refuse func(string, ...any) error) error {
	device := &egpu.ElasticGPU{}
	if err := s.options.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.ElasticGPUName}, device); err != nil {
		if apierrors.IsNotFound(err) {
			return refuse("its ElasticGPU %s is gone", claim.Spec.ElasticGPUName)
		}
		return err
	}
	if err := request.CheckBinding(claim, device); err != nil {
		return refuse("%v", err)
	}
	w.bound = append(w.bound, boundClaim{container, device})
	if request.IsServed(device) {
		w.connect()
	}
	if affinity := device.Spec.NodeAffinity; affinity != nil {
		w.ask.Affinity = both(w.ask.Affinity, request.Terms(affinity.Required))
	}
	return nil
}

// both lists of terms must hold, any term of each.
func both(a, b []placement.Term) []placement.Term {
	if len(a) == 0 || len(b) == 0 {
		return slices.Concat(a, b)
	}
	var out []placement.Term
	for _, x := range a {
		for _, y := range b {
			out = append(out, slices.Concat(x, y))
		}
	}
	return out
}
