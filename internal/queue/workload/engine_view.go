package workload

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelpers "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
)

// KeyOf names the workload as the engine does.
func KeyOf(wl *kueue.Workload) admission.Key {
	return admission.Key{Namespace: wl.Namespace, Name: wl.Name}
}

// isPreemptedByOthers says that the last preemption was for another queue's workload, and not a move to other nodes.
func isPreemptedByOthers(wl *kueue.Workload) bool {
	preempted := condition(wl, kueue.WorkloadPreempted)
	return preempted != nil && preempted.Reason != kueue.InClusterQueueReason && preempted.Reason != string(admission.ReasonDefragmentation)
}

// isMoving says that the workload is evicted to start again on other nodes with the quota that it had, or has just left them:
// its own spec is as it was, and it was told of no other reason to wait since. Conditions are the queue's: who may write a
// job or a Workload's spec makes nothing of this true, and ends it by asking for anything else than before.
func isMoving(wl *kueue.Workload) bool {
	evicted, preempted := condition(wl, kueue.WorkloadEvicted), condition(wl, kueue.WorkloadPreempted)
	if evicted == nil || evicted.Reason != kueue.WorkloadEvictedByPreemption || evicted.ObservedGeneration != wl.Generation ||
		preempted == nil || preempted.Status != metav1.ConditionTrue || preempted.Reason != string(admission.ReasonDefragmentation) {
		return false
	}
	reserved := condition(wl, kueue.WorkloadQuotaReserved)
	return reserved != nil && (reserved.Status == metav1.ConditionTrue || reserved.Message == evicted.Message || isNominated(wl))
}

// ForEngine is the workload as the engine sees it, with requests transformed.
func ForEngine(wl *kueue.Workload, transformations *ResourceTransformations) admission.Workload {
	w := admission.Workload{
		Key:        KeyOf(wl),
		UID:        string(wl.UID),
		LocalQueue: string(wl.Spec.QueueName),
		Priority:   int64(ptr.Deref(wl.Spec.Priority, 0)),
		Created:    wl.CreationTimestamp.Time,
		Inactive:   !IsActive(wl) || wl.DeletionTimestamp != nil && !HasReservation(wl) || requeuePrevented(wl) || waitsForJob(wl),
		Gated:      IsGated(wl),
		Finished:   hasEnded(wl),
		Evicting:   IsEvicted(wl),
		PodsReady:  isTrue(wl, kueue.WorkloadPodsReady),
		MaxRunTime: seconds(wl.Spec.MaximumExecutionTimeSeconds),
		RanBefore:  seconds(wl.Status.AccumulatedPastExecutionTimeSeconds),

		CheckpointedAt: CheckpointedAt(wl),
		Stays:          wl.Annotations[egpu.OnPreemptionAnnotation] == egpu.OnPreemptionSwap, // its pods stay on their nodes
	}
	setTerms(&w, wl)
	if evicted := condition(wl, kueue.WorkloadEvicted); evicted != nil {
		w.EvictedAt, w.EvictedBy = evicted.LastTransitionTime.Time, evicted.Reason
		w.PreemptedByOthers = w.EvictedBy == kueue.WorkloadEvictedByPreemption && isPreemptedByOthers(wl)
		if w.Evicting && w.EvictedBy == kueue.WorkloadEvictedByPreemption {
			w.EvictedFor, w.Moving = preemptor(evicted.Message), isMoving(wl)
		}
	}
	if state := wl.Status.RequeueState; state != nil && state.RequeueAt != nil {
		w.RequeueAt = state.RequeueAt.Time
	}
	if IsAdmitted(wl) {
		w.StartedAt = condition(wl, kueue.WorkloadAdmitted).LastTransitionTime.Time
	}
	w.PodSets = make([]admission.PodSet, len(wl.Spec.PodSets))
	for i := range wl.Spec.PodSets {
		w.PodSets[i] = podSetForEngine(&wl.Spec.PodSets[i], transformations)
		w.PodSets[i].Flavors = OnlyFlavors(wl)
	}
	for _, reclaimable := range wl.Status.ReclaimablePods {
		for i := range w.PodSets {
			if w.PodSets[i].Name == string(reclaimable.Name) {
				w.PodSets[i].Reclaimable = min(max(reclaimable.Count, 0), w.PodSets[i].Count)
			}
		}
	}
	if HoldsReservation(wl) {
		w.Admission = admissionForEngine(wl)
	} else {
		w.Nominated, w.AwaitsPods = isNominated(wl), awaitsPods(wl)
	}
	if HasReservation(wl) && w.Admission == nil { // it may be active again by now
		w.Unready = "Its pods have not ended yet"
	}
	return w
}

// setTerms tells the engine what a job says of nodes that are bought. What cannot be read is not given; explain reports it.
func setTerms(w *admission.Workload, wl *kueue.Workload) {
	if len(wl.Annotations) > 0 {
		terms, _ := PurchaseTermsOf(wl.Annotations)
		input, _ := InputOf(wl.Annotations)
		w.CheckpointInterval, w.DelayPrice, w.Input = terms.Checkpoint, terms.DelayPrice, admission.Input(input)
		w.Waits = !terms.Deadline.IsZero() || terms.DelayPrice > 0
	}
	w.HandedOver = !EvictedAt(wl, cloudv1.ReasonOnDemand).IsZero()
}

// waitsForJob says that the job has to change before its workload may have quota again: pods of a group are to
// be replaced, or there are none.
func waitsForJob(wl *kueue.Workload) bool {
	return !HasReservation(wl) && (IsOnHold(wl) || isTrue(wl, kueue.WorkloadWaitingForReplacementPods))
}

// PodsLeft is how many pods of a set are not done, or will be replaced.
func PodsLeft(wl *kueue.Workload, set kueue.PodSetReference) int32 {
	left := int32(0)
	for i := range wl.Spec.PodSets {
		if wl.Spec.PodSets[i].Name == set {
			left = wl.Spec.PodSets[i].Count
		}
	}
	for _, reclaimable := range wl.Status.ReclaimablePods {
		if reclaimable.Name == set {
			left -= max(reclaimable.Count, 0)
		}
	}
	return max(left, 0)
}

// IsGated says that someone must agree before the workload is considered.
func IsGated(wl *kueue.Workload) bool {
	return strings.TrimSpace(wl.Annotations[GatedByAnnotation]) != ""
}

// UsesResourceClaims says that the workload's pods use ResourceClaims.
func UsesResourceClaims(wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.Spec.PodSets, func(set kueue.PodSet) bool { return len(set.Template.Spec.ResourceClaims) > 0 })
}

// PriorityBoost is added to the priority of the workload's class. The webhook rejects values that
// are not numbers; one found here counts as zero.
func PriorityBoost(wl *kueue.Workload) int64 {
	n, err := strconv.ParseInt(wl.Annotations[PriorityBoostAnnotation], 10, 32)
	if err != nil {
		return 0
	}
	return n
}

func admissionForEngine(wl *kueue.Workload) *admission.Admission {
	a := &admission.Admission{
		Queue:      string(wl.Status.Admission.ClusterQueue),
		ReservedAt: condition(wl, kueue.WorkloadQuotaReserved).LastTransitionTime.Time,
		AvoidNodes: AvoidNodes(wl),
	}
	elsewhere := cardsElsewhere(wl)
	for _, assigned := range wl.Status.Admission.PodSetAssignments {
		flavors := make(map[string]string, len(assigned.Flavors))
		for name, flavor := range assigned.Flavors {
			flavors[string(name)] = string(flavor)
		}
		a.PodSets = append(a.PodSets, admission.PodSetAssignment{
			Name:      string(assigned.Name),
			Count:     max(ptr.Deref(assigned.Count, 0), 0),
			Flavors:   flavors,
			Usage:     amounts(assigned.ResourceUsage),
			Elsewhere: elsewhere[string(assigned.Name)],
		})
	}
	return a
}

// ForStatus is an admission of the engine, as status.admission has it.
func ForStatus(a *admission.Admission) *kueue.Admission {
	out := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(a.Queue)}
	for _, assigned := range a.PodSets {
		flavors := make(map[corev1.ResourceName]kueue.ResourceFlavorReference, len(assigned.Flavors))
		for name, flavor := range assigned.Flavors {
			flavors[corev1.ResourceName(name)] = kueue.ResourceFlavorReference(flavor)
		}
		out.PodSetAssignments = append(out.PodSetAssignments, kueue.PodSetAssignment{
			Name:          kueue.PodSetReference(assigned.Name),
			Flavors:       flavors,
			ResourceUsage: quantities(assigned.Usage),
			Count:         ptr.To(assigned.Count),
		})
	}
	return out
}

func podSetForEngine(ps *kueue.PodSet, transformations *ResourceTransformations) admission.PodSet {
	spec := &ps.Template.Spec
	quota, pod := transformations.requests(PodRequests(spec))
	return admission.PodSet{
		Name:         string(ps.Name),
		Count:        max(ps.Count, 0),
		MinCount:     max(ptr.Deref(ps.MinCount, 0), 0),
		Requests:     quota,
		NodeRequests: pod,
		Group:        podSetGroup(ps.TopologyRequest),
		NodeSelector: spec.NodeSelector,
		Affinity:     requiredAffinity(spec.Affinity),
		Preferences:  preferredAffinity(spec.Affinity),
		Tolerations:  Tolerations(spec.Tolerations),
		Topology:     topologyForEngine(ps.TopologyRequest),
	}
}

// PodRequests is what one pod asks for in all; where only a limit is given it is the request, as
// the API server defaults it when the pod is created.
func PodRequests(spec *corev1.PodSpec) corev1.ResourceList {
	pod := &corev1.Pod{Spec: *spec}
	DefaultRequests(&pod.Spec)
	requests := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})
	delete(requests, egpu.ResourceClaim) // the claim's own requests count instead
	return requests
}

// DefaultRequests makes limits the requests where there are none, as the API server does when the
// pod is created. It replaces the containers, and leaves the given ones unchanged.
func DefaultRequests(spec *corev1.PodSpec) {
	for _, containers := range []*[]corev1.Container{&spec.Containers, &spec.InitContainers} {
		if needsDefaulting(*containers) {
			*containers = withRequestsFromLimits(*containers)
		}
	}
	if pod := spec.Resources; pod != nil {
		spec.Resources = &corev1.ResourceRequirements{Limits: pod.Limits, Requests: missing(pod.Requests, pod.Limits), Claims: pod.Claims}
	}
}

func needsDefaulting(containers []corev1.Container) bool {
	for i := range containers {
		for name := range containers[i].Resources.Limits {
			if _, ok := containers[i].Resources.Requests[name]; !ok {
				return true
			}
		}
	}
	return false
}

func withRequestsFromLimits(containers []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(containers))
	for i := range containers {
		out[i] = *containers[i].DeepCopy()
		if out[i].Resources.Requests == nil {
			out[i].Resources.Requests = corev1.ResourceList{}
		}
		for name, limit := range out[i].Resources.Limits {
			if _, ok := out[i].Resources.Requests[name]; !ok {
				out[i].Resources.Requests[name] = limit
			}
		}
	}
	return out
}

func requiredAffinity(affinity *corev1.Affinity) []admission.Term {
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	var terms []admission.Term
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		terms = append(terms, affinityTerm(&term))
	}
	return terms
}

func affinityTerm(term *corev1.NodeSelectorTerm) (t admission.Term) {
	for _, r := range term.MatchExpressions {
		t = append(t, admission.Requirement{Key: r.Key, Operator: string(r.Operator), Values: r.Values})
	}
	return t
}

// preferredAffinity leaves out terms without expressions, which say nothing.
func preferredAffinity(affinity *corev1.Affinity) []admission.Preference {
	if affinity == nil || affinity.NodeAffinity == nil {
		return nil
	}
	var out []admission.Preference
	for _, wish := range affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if term := affinityTerm(&wish.Preference); len(term) > 0 {
			out = append(out, admission.Preference{Term: term, Weight: int64(wish.Weight)})
		}
	}
	return out
}

// Tolerations as the engine has them.
func Tolerations(in []corev1.Toleration) []admission.Toleration {
	var out []admission.Toleration
	for _, t := range in {
		out = append(out, admission.Toleration{Key: t.Key, Operator: string(t.Operator), Value: t.Value, Effect: string(t.Effect)})
	}
	return out
}

func podSetGroup(request *kueue.PodSetTopologyRequest) string {
	if request == nil {
		return ""
	}
	return ptr.Deref(request.PodSetGroupName, "")
}

func topologyForEngine(request *kueue.PodSetTopologyRequest) *admission.TopologyRequest {
	if request == nil {
		return nil
	}
	out := &admission.TopologyRequest{}
	for _, layer := range request.PodsetSliceRequiredTopologyConstraints {
		out.Slices = append(out.Slices, admission.TopologySlice{Level: layer.Topology, Size: layer.Size})
	}
	if len(out.Slices) == 0 && request.PodSetSliceRequiredTopology != nil {
		out.Slices = []admission.TopologySlice{{Level: *request.PodSetSliceRequiredTopology, Size: ptr.Deref(request.PodSetSliceSize, 0)}}
	}
	switch {
	case request.Required != nil:
		out.Mode, out.Level = admission.TopologyRequired, *request.Required
	case request.Preferred != nil:
		out.Mode, out.Level = admission.TopologyPreferred, *request.Preferred
	case !ptr.Deref(request.Unconstrained, false) && len(out.Slices) == 0:
		return nil
	}
	return out
}

func condition(wl *kueue.Workload, name string) *metav1.Condition {
	return apimeta.FindStatusCondition(wl.Status.Conditions, name)
}

func seconds(n *int32) time.Duration { return time.Duration(ptr.Deref(n, 0)) * time.Second }
