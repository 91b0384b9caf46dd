package claims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
)

// What pods have on a card of another node, their server has. Where theirs is to be is written on them, as on any pod; we
// write it on to the server, whose node's agent moves it. Who may write on a pod may so move the server of its claim, and no
// other: which claim has an ElasticGPU, and which pod serves that, no tenant writes.

// follow has a server where those who use it are to be: off the card while all of them are to be off theirs. It has a process
// for each of theirs, and they move together, so those of one job do not leave it alone.
func (d *deviceController) follow(ctx context.Context, device *egpu.ElasticGPU, server *corev1.Pod) error {
	users, err := d.usersOf(ctx, device)
	if err != nil {
		return err
	}
	wants := map[string]string{egpu.SwapAnnotation: whereTo(users, server), egpu.SharedAnnotation: sharedBy(users)}
	before := server.DeepCopy()
	if server.Annotations == nil {
		server.Annotations = map[string]string{}
	}
	for name, value := range wants {
		if value == "" {
			delete(server.Annotations, name)
		} else {
			server.Annotations[name] = value
		}
	}
	if maps.Equal(server.Annotations, before.Annotations) {
		return nil
	}
	return d.Patch(ctx, server, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// usersOf an ElasticGPU are pods on nodes that have not ended.
func (d *deviceController) usersOf(ctx context.Context, device *egpu.ElasticGPU) ([]*corev1.Pod, error) {
	ref := device.Spec.ClaimRef
	pods := &corev1.PodList{}
	if err := d.List(ctx, pods, client.InNamespace(ref.Namespace), client.MatchingFields{usesClaim: ref.Name}); err != nil {
		return nil, err
	}
	var users []*corev1.Pod
	for i := range pods.Items {
		if isUser(&pods.Items[i]) {
			users = append(users, &pods.Items[i])
		}
	}
	return users, nil
}

func isUser(pod *corev1.Pod) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return pod.Spec.NodeName != "" && !ended
}

// whereTo a server goes: the annotation that it is to have. One that is back has none.
func whereTo(users []*corev1.Pod, server *corev1.Pod) string {
	stays := func(pod *corev1.Pod) bool { return pod.Annotations[egpu.SwapAnnotation] != egpu.SwapOut }
	if len(users) > 0 && !slices.ContainsFunc(users, stays) {
		return egpu.SwapOut
	}
	is, asked := egpu.SwapCondition(server), server.Annotations[egpu.SwapAnnotation]
	switch {
	case asked == "" && !isOut(server):
		return ""
	case asked == egpu.SwapIn && is != nil && is.Reason == egpu.ReasonMovedIn:
		return ""
	}
	return egpu.SwapIn
}

// isOut says that a server has left the card, as it was told to.
func isOut(server *corev1.Pod) bool {
	is := egpu.SwapCondition(server)
	return is != nil && is.Status == corev1.ConditionTrue && is.Reason != egpu.ReasonIdle && is.Reason != egpu.ReasonReturning
}

// sharedBy says which jobs a server is used by, if they are several.
func sharedBy(users []*corev1.Pod) string {
	jobs := map[string]string{}
	for _, pod := range users {
		job := jobOf(pod)
		if first := jobs[job]; first == "" || pod.Name < first {
			jobs[job] = pod.Name
		}
	}
	if len(jobs) < 2 {
		return ""
	}
	names := slices.Sorted(maps.Values(jobs))
	more := ""
	if len(names) > mostNamed {
		names, more = names[:mostNamed], " and others"
	}
	return fmt.Sprintf("pods of %d jobs use its claim: %s%s", len(jobs), strings.Join(names, ", "), more)
}

// mostNamed in a message.
const mostNamed = 4

// jobOf a pod, as its queue calls it; a pod without one is a job of its own.
func jobOf(pod *corev1.Pod) string {
	if workload := pod.Annotations[kueue.WorkloadAnnotation]; workload != "" {
		return workload
	}
	if group := pod.Labels[kueuelabels.PodGroupName]; group != "" {
		return group
	}
	return "pod/" + pod.Name // no workload is called so
}

// devicesOfPod are those on cards of other nodes that it uses.
func (d *deviceController) devicesOfPod(ctx context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, use := range request.Uses(object.(*corev1.Pod)) {
		claim := &egpu.ElasticGPUClaim{}
		if d.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: use.Claim}, claim) == nil && claim.Status.Remote {
			requests = append(requests, deviceOfClaim(ctx, claim)...)
		}
	}
	return requests
}

// moves are the events of pods that come or go, or are told where to have what is theirs.
var moves = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, isPod := e.ObjectOld.(*corev1.Pod)
		is, too := e.ObjectNew.(*corev1.Pod)
		return isPod && too && (isUser(was) != isUser(is) || was.Annotations[egpu.SwapAnnotation] != is.Annotations[egpu.SwapAnnotation])
	},
}
