package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/gpu/request"
)

// What a container has on a card of another node, the server of its claim has there. The GPU scheduler tells the server where
// that is to be, as the pods that use it were told, and the agent there moves it. Here it is looked at what came of it: the
// pod then says of itself what one says whose cards are here.

// serverPod of a claim's card.
func (r *remoteCards) serverPod(ctx context.Context, to *share.Remote) (*corev1.Pod, error) {
	if r == nil {
		return nil, fmt.Errorf("ElasticGPU %s is on another node, and devicePlugin.remote is not set here any more", to.Device)
	}
	if _, err := r.device(ctx, to.Device, string(to.Claim)); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: r.node.Config.Remote.ServerNamespace, Name: request.ServerName(to.Device)}
	if err := r.node.API.Get(ctx, key, pod); err != nil {
		return nil, err
	}
	if pod.Annotations[egpu.ServesAnnotation] != to.Device {
		return nil, fmt.Errorf("pod %s does not serve ElasticGPU %s", key, to.Device)
	}
	return pod, nil
}

// hereAndFar are what of a pod's shares is on this node, and what is on others.
func hereAndFar(grants []slots.Grant) (here, far []slots.Grant) {
	for _, g := range grants {
		if g.Remote != nil {
			far = append(far, g)
		} else {
			here = append(here, g)
		}
	}
	return here, far
}

// moveServers says what the servers of a pod's cards on other nodes have moved, once all of them are where they were asked to
// be. They move by themselves.
func (s *Swapper) moveServers(ctx context.Context, far []slots.Grant, w *way) (o outcome, err error) {
	for i := range far {
		server, err := s.Server(ctx, far[i].Remote)
		if apierrors.IsNotFound(err) {
			return outcome{waits: true}, nil // another one is made
		}
		if err != nil {
			return o, err
		}
		there, why := serverIs(server, w.where)
		switch {
		case why != "":
			why = fmt.Sprintf("container %s: its server, pod %s/%s: %s", far[i].Container, server.Namespace, server.Name, why)
			return outcome{refused: why, onCard: w.status == corev1.ConditionTrue}, nil
		case !there:
			return outcome{waits: true}, nil
		}
		o.moved = append(o.moved, fmt.Sprintf("pod %s/%s, %s", server.Namespace, server.Name, lastMove(server)))
	}
	return o, nil
}

// serverIs where its users were asked to be, or says why it is not to be.
func serverIs(server *corev1.Pod, where string) (there bool, why string) {
	is, asked := egpu.SwapCondition(server), server.Annotations[egpu.SwapAnnotation]
	switch {
	case where == egpu.SwapOut && asked != egpu.SwapOut:
		return false, server.Annotations[egpu.SharedAnnotation] // others stay
	case where == egpu.SwapOut && is != nil && is.Reason == egpu.ReasonCannotMoveOut, where == egpu.SwapIn && asked == egpu.SwapIn && is != nil && is.Reason == egpu.ReasonCannotMoveIn:
		return false, is.Message
	case where == egpu.SwapOut:
		return egpu.IsSwappedOut(server), ""
	}
	return asked != egpu.SwapOut && reported(server) == corev1.ConditionFalse, ""
}

func lastMove(server *corev1.Pod) string {
	if is := egpu.SwapCondition(server); is != nil {
		return is.Message
	}
	return "which had not left"
}

// serverImmovable says why the server of a container could not be moved; known is false where that is not said yet.
func (r *SwapReporter) serverImmovable(ctx context.Context, g *slots.Grant) (why string, known bool) {
	server, err := r.Server(ctx, g.Remote)
	if err != nil {
		return "", false
	}
	why = server.Annotations[egpu.SharedAnnotation]
	for i := range server.Status.Conditions {
		if c := &server.Status.Conditions[i]; c.Type == egpu.Swappable {
			known = true
			if c.Status == corev1.ConditionFalse {
				why = c.Message
			}
		}
	}
	if why != "" {
		return fmt.Sprintf("container %s: its server, pod %s/%s: %s", g.Container, server.Namespace, server.Name, why), true
	}
	return "", known
}
