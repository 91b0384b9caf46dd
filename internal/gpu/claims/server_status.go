package claims

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
)

// Reasons in the status of an ElasticGPU that is used from other nodes. Its message says of one that is served since when: the
// server that comes after it is another one, also where nobody saw it end.
const (
	reasonNoEngine       = "NoEngine"       // no server can be made
	reasonServerNotReady = "ServerNotReady" // its first server does not run yet
	reasonServed         = egpu.ReasonServed
	reasonSwappedOut     = egpu.ReasonSwappedOut
	reasonServerLost     = "ServerLost" // one that ran does not any more
)

// Reasons of events, for the claim and the pods that use it.
const (
	eventServerLost  = "RemoteCardLost"
	eventServedAgain = "RemoteCardServed"
)

// mostReports is for how many of the pods that use one claim there is an event: the claim has it, too.
const mostReports = 64

// tell in the status how a server is, and those who use it when one is lost, or there again.
func (d *deviceController) tell(ctx context.Context, device *egpu.ElasticGPU, pod *corev1.Pod) error {
	was := device.Status
	reason, message, lost := serverStatus(was, pod)
	if err := setPhase(ctx, d, device, was.Phase, reason, message); err != nil {
		return err
	}
	switch {
	case lost != "":
		return d.tellUsers(ctx, device, corev1.EventTypeWarning, eventServerLost, lost)
	case ran(device.Status) && was.Reason == reasonServerLost:
		return d.tellUsers(ctx, device, corev1.EventTypeNormal, eventServedAgain, message)
	}
	return nil
}

// serverStatus is what the status says of a server, after what it said before; lost: what is reported to those who used it.
func serverStatus(was egpu.ElasticGPUStatus, pod *corev1.Pod) (reason, message, lost string) {
	if since := servesSince(pod); since != "" {
		message = fmt.Sprintf("pod %s/%s serves it on node %s since %s", pod.Namespace, pod.Name, pod.Spec.NodeName, since)
		if ran(was) && !strings.HasPrefix(was.Message, message) {
			lost = "its server ended, and what was on the card is lost: programs that used it start again; now " + message
		}
		if isOut(pod) {
			return reasonSwappedOut, message + "; what it had on the card is on the host: " + egpu.SwapCondition(pod).Message, lost
		}
		return reasonServed, message, lost
	}
	message = fmt.Sprintf("pod %s/%s, which serves it on node %s, %s", pod.Namespace, pod.Name, pod.Spec.NodeName, whyNotReady(pod))
	switch {
	case ran(was):
		return reasonServerLost, message, "its server is lost, and with it what was on the card, unless it comes back within half a minute: " + message
	case was.Reason == reasonServerLost:
		return reasonServerLost, message, ""
	}
	return reasonServerNotReady, message, ""
}

// ran says that a server was there.
func ran(was egpu.ElasticGPUStatus) bool {
	return was.Reason == reasonServed || was.Reason == reasonSwappedOut
}

// servesSince is when the process of a server began that is ready; empty for one that is not.
func servesSince(pod *corev1.Pod) string {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if !ready || pod.DeletionTimestamp != nil {
		return ""
	}
	since := pod.CreationTimestamp
	for i := range pod.Status.ContainerStatuses {
		if running := pod.Status.ContainerStatuses[i].State.Running; running != nil {
			since = running.StartedAt
		}
	}
	return since.UTC().Format(time.RFC3339)
}

// whyNotReady in words.
func whyNotReady(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "is being deleted"
	}
	if pod.Status.Message != "" {
		return "is not ready: " + pod.Status.Message
	}
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		for _, ended := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if ended != nil {
				return fmt.Sprintf("ended: %s, exit code %d", ended.Reason, ended.ExitCode)
			}
		}
		if waiting := s.State.Waiting; waiting != nil && waiting.Message != "" {
			return "is not ready: " + waiting.Message
		}
	}
	return "is not ready"
}

// tellUsers of an ElasticGPU, and its claim.
func (d *deviceController) tellUsers(ctx context.Context, device *egpu.ElasticGPU, kind, reason, message string) error {
	ref := device.Spec.ClaimRef
	claim := &egpu.ElasticGPUClaim{}
	if err := d.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	d.events.Eventf(claim, device, kind, reason, "Serve", "%s", message)
	users, err := d.usersOf(ctx, device)
	if err != nil {
		return err
	}
	for _, pod := range users[:min(len(users), mostReports)] {
		d.events.Eventf(pod, claim, kind, reason, "Serve", "ElasticGPUClaim %s: %s", ref.Name, message)
	}
	return nil
}

// serverTrouble is why programs do not reach the card of an ElasticGPU; empty where they do, or where that is not of ours.
func serverTrouble(device *egpu.ElasticGPU) string {
	if !request.IsServed(device) || device.Status.Reason == reasonServed {
		return ""
	}
	return device.Status.Message
}
