package jobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// podGroup is a job that is held back by gates on its pods: a single pod, the
// pods of a group, or the pods of an object that has no suspend flag.
type podGroup struct {
	kind *Kind
	// name of the group; empty for a single pod.
	name string
	pods []*corev1.Pod // the oldest first
	// parent is the object the pods belong to, if that tells what they ask for,
	// and gone says it is no longer there.
	parent     *object
	parentGone bool
	now        time.Time
}

var _ job = &podGroup{}

func (g *podGroup) meta() client.Object { return g.pods[0] }
func (g *podGroup) row() *Kind          { return g.kind }

func gated(pod *corev1.Pod) bool { return hasGate(pod, AdmissionGate) }

func hasGate(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return gate.Name == name })
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// live says the pod runs, or may yet.
func live(pod *corev1.Pod) bool { return !ended(pod) && pod.DeletionTimestamp == nil }

// serving groups belong to an object that replaces their pods, and never end.
func (g *podGroup) serving() bool {
	return g.parent != nil || g.pods[0].Annotations[GroupServing] == "true"
}

func (g *podGroup) held() bool {
	return !slices.ContainsFunc(g.pods, func(pod *corev1.Pod) bool { return live(pod) && !gated(pod) })
}

func (g *podGroup) started() bool {
	return !slices.ContainsFunc(g.pods, func(pod *corev1.Pod) bool { return live(pod) && gated(pod) })
}

// active: a pod that was told to stop still runs. One that has not ended when
// its grace period is over is on a node we cannot wait for.
func (g *podGroup) active() (bool, error) {
	return slices.ContainsFunc(g.pods, func(pod *corev1.Pod) bool {
		stuck := pod.DeletionTimestamp != nil && pod.DeletionTimestamp.Time.Before(g.now)
		return !ended(pod) && !gated(pod) && !stuck && pod.Spec.NodeName != ""
	}), nil
}

// stuckAt is the time until the last of the pods told to stop should have; zero
// if there is none.
func (g *podGroup) stuckAt() time.Duration {
	var longest time.Duration
	for _, pod := range g.pods {
		if pod.DeletionTimestamp != nil && !ended(pod) {
			longest = max(longest, pod.DeletionTimestamp.Sub(g.now)+time.Second)
		}
	}
	return longest
}

// total is the number of pods the group is to have.
func (g *podGroup) total() (int, error) {
	if g.name == "" {
		return 1, nil
	}
	text := g.pods[len(g.pods)-1].Annotations[GroupTotal]
	total, err := strconv.Atoi(text)
	if err != nil || total < 1 {
		return 0, &misfitError{fmt.Errorf("annotation %s: %q is not a number of pods", GroupTotal, text)}
	}
	return total, nil
}

func (g *podGroup) finished() (outcome, error) {
	if g.serving() {
		return outcome{}, nil
	}
	if g.name == "" {
		pod := g.pods[0]
		switch pod.Status.Phase {
		case corev1.PodSucceeded:
			return outcome{true, kueue.WorkloadFinishedReasonSucceeded, pod.Status.Message}, nil
		case corev1.PodFailed:
			return outcome{true, kueue.WorkloadFinishedReasonFailed, pod.Status.Message}, nil
		}
		return outcome{}, nil
	}
	total, err := g.total()
	if err != nil {
		return outcome{}, err
	}
	succeeded, running, final := 0, false, false
	for _, pod := range g.pods {
		if pod.Status.Phase == corev1.PodSucceeded {
			succeeded++
		}
		running = running || !ended(pod)
		final = final || pod.Annotations[RetriableAnnotation] == "false"
	}
	message := fmt.Sprintf("Pods succeeded: %d/%d.", succeeded, total)
	switch {
	case succeeded >= total:
		return outcome{true, kueue.WorkloadFinishedReasonSucceeded, message}, nil
	case !running && final:
		return outcome{true, kueue.WorkloadFinishedReasonFailed, message}, nil
	}
	return outcome{}, nil
}

func (g *podGroup) ready(wl *kueue.Workload) (bool, error) {
	up := int64(0)
	for _, pod := range g.pods {
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if ready || pod.Status.Phase == corev1.PodSucceeded {
			up++
		}
	}
	want := admittedPods(wl)
	if g.parent != nil { // which may have become smaller
		given, err := g.reclaimable(wl)
		if err != nil {
			return false, err
		}
		for _, pods := range given {
			want -= int64(pods.Count)
		}
	}
	return up >= want, nil
}

func (g *podGroup) podSets(ctx context.Context, c client.Reader) ([]kueue.PodSet, error) {
	if g.parent != nil {
		return g.parent.podSets(ctx, c)
	}
	if g.name == "" {
		return []kueue.PodSet{podSetOf(g.pods[0], kueue.DefaultPodSetName, 1)}, nil
	}
	total, err := g.total()
	if err != nil {
		return nil, err
	}
	members := slices.DeleteFunc(slices.Clone(g.pods), func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
	})
	fast := slices.ContainsFunc(g.pods, func(pod *corev1.Pod) bool { return pod.Annotations[GroupFastAdmission] == "true" })
	if len(members) == 0 || len(members) < total && !fast {
		return nil, &misfitError{fmt.Errorf("the group %s has %d of its %d pods", g.name, len(members), total)}
	}
	var sets []kueue.PodSet
	for _, pod := range members[:min(total, len(members))] {
		role := kueue.PodSetReference(roleOf(pod))
		if i := slices.IndexFunc(sets, func(set kueue.PodSet) bool { return set.Name == role }); i >= 0 {
			sets[i].Count++
			continue
		}
		sets = append(sets, podSetOf(pod, role, 1))
	}
	sets[0].Count += int32(max(0, total-len(members)))
	slices.SortFunc(sets, func(a, b kueue.PodSet) int { return cmp.Compare(a.Name, b.Name) })
	return sets, nil
}

// podSetOf describes a pod as it was before any admission.
func podSetOf(pod *corev1.Pod, name kueue.PodSetReference, count int32) kueue.PodSet {
	template := &corev1.PodTemplateSpec{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Spec: *pod.Spec.DeepCopy()}
	template.Spec.SchedulingGates, template.Spec.NodeName = nil, ""
	return kueue.PodSet{
		Name: name, Count: count, Template: *tidy(template),
		TopologyRequest: topologyRequest(&pod.ObjectMeta, pod.Annotations[kueue.PodGroupPodIndexLabelAnnotation], false, "", 0),
	}
}

// roleOf names the pods of a group that ask for the same.
func roleOf(pod *corev1.Pod) string {
	if role := pod.Annotations[RoleAnnotation]; role != "" {
		return role
	}
	return roleHash(&pod.Spec)
}

func roleHash(spec *corev1.PodSpec) string {
	type container struct {
		Resources corev1.ResourceRequirements
		Ports     []corev1.ContainerPort
	}
	var shape struct {
		Init, Main                     []container
		NodeSelector                   map[string]string
		Affinity                       *corev1.Affinity
		Tolerations                    []corev1.Toleration
		RuntimeClass, Scheduler, Class string
		Overhead                       corev1.ResourceList
		Spread                         []corev1.TopologySpreadConstraint
		Claims                         []corev1.PodResourceClaim
	}
	for _, c := range spec.InitContainers {
		shape.Init = append(shape.Init, container{c.Resources, c.Ports})
	}
	for _, c := range spec.Containers {
		shape.Main = append(shape.Main, container{c.Resources, c.Ports})
	}
	shape.NodeSelector, shape.Affinity, shape.Tolerations = spec.NodeSelector, spec.Affinity, spec.Tolerations
	if spec.RuntimeClassName != nil {
		shape.RuntimeClass = *spec.RuntimeClassName
	}
	shape.Scheduler, shape.Class = spec.SchedulerName, spec.PriorityClassName
	shape.Overhead, shape.Spread, shape.Claims = spec.Overhead, spec.TopologySpreadConstraints, spec.ResourceClaims
	data, err := json.Marshal(shape)
	if err != nil {
		panic(err) // every field is plain data
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:8]
}

func (g *podGroup) reclaimable(wl *kueue.Workload) ([]kueue.ReclaimablePod, error) {
	if g.name == "" {
		return nil, nil
	}
	done := map[kueue.PodSetReference]int32{}
	for _, pod := range g.pods {
		if pod.Status.Phase == corev1.PodSucceeded && !g.serving() {
			done[kueue.PodSetReference(roleOf(pod))]++
		}
	}
	if g.parent != nil {
		counts, err := g.parent.counts()
		if err != nil {
			return nil, err
		}
		for i, set := range wl.Spec.PodSets {
			done[set.Name] = max(0, admittedCount(wl, i)-counts[set.Name])
		}
	}
	return reclaimed(wl, done), nil
}

// reclaimed lists, in the workload's order, how many pods of a set need no
// quota any more.
func reclaimed(wl *kueue.Workload, done map[kueue.PodSetReference]int32) []kueue.ReclaimablePod {
	var out []kueue.ReclaimablePod
	for i := range wl.Spec.PodSets {
		if n := min(done[wl.Spec.PodSets[i].Name], admittedCount(wl, i)); n > 0 {
			out = append(out, kueue.ReclaimablePod{Name: wl.Spec.PodSets[i].Name, Count: n})
		}
	}
	return out
}

// start takes the gates off as many pods as were admitted, the oldest first.
func (g *podGroup) start(ctx context.Context, c client.Client, wl *kueue.Workload, additions []podSetInfo) error {
	room := map[string]int32{}
	index := map[string]int{}
	for i, set := range wl.Spec.PodSets {
		room[string(set.Name)], index[string(set.Name)] = additions[i].count, i
	}
	role := func(pod *corev1.Pod) string {
		if g.name == "" {
			return string(kueue.DefaultPodSetName)
		}
		return roleOf(pod)
	}
	for _, pod := range g.pods {
		if !gated(pod) && (live(pod) || pod.Status.Phase == corev1.PodSucceeded) {
			room[role(pod)]--
		}
	}
	return letIn(ctx, c, g.pods, AdmissionGate, role, room, func(pod *corev1.Pod) error {
		info := additions[index[role(pod)]]
		if len(info.gates) == 0 { // it was to be placed by topology, but its flavor has none
			pod.Spec.SchedulingGates = slices.DeleteFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool {
				return g.Name == kueue.TopologySchedulingGate
			})
		}
		return info.addTo(&pod.ObjectMeta, &pod.Spec)
	})
}

// letIn takes a gate off as many pods of each role as there is room for.
func letIn(ctx context.Context, c client.Client, pods []*corev1.Pod, gate string, role func(*corev1.Pod) string,
	room map[string]int32, change func(*corev1.Pod) error) error {
	for _, pod := range pods {
		name := role(pod)
		if !live(pod) || !hasGate(pod, gate) || room[name] <= 0 {
			continue
		}
		room[name]--
		started := pod.DeepCopy()
		if change != nil {
			if err := change(started); err != nil {
				return err
			}
		}
		started.Spec.SchedulingGates = slices.DeleteFunc(started.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == gate })
		if err := c.Patch(ctx, started, lockedMerge(pod)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// stop deletes what runs: a pod cannot be stopped otherwise. Whoever made the
// pods may make new ones, which wait again.
func (g *podGroup) stop(ctx context.Context, c client.Client, why string) error {
	for _, pod := range g.pods {
		if !live(pod) || gated(pod) {
			continue
		}
		told := pod.DeepCopy()
		told.Status.Conditions = append(slices.Clone(told.Status.Conditions), corev1.PodCondition{
			Type: "TerminationTarget", Status: corev1.ConditionTrue, Reason: "StoppedByQueue", Message: why, LastTransitionTime: metav1.Now(),
		})
		if err := c.Status().Patch(ctx, told, client.StrategicMergeFrom(pod)); client.IgnoreNotFound(err) != nil {
			return err
		}
		if err := c.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// restore has nothing to do: pods are not restored but replaced.
func (g *podGroup) restore(context.Context, client.Client, *kueue.Workload) error { return nil }

// settle lets go of pods nobody needs to look at any more, deletes those the
// group has too many of, and keeps the workload's list of owners complete.
func (g *podGroup) settle(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	over := wl == nil || apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished) != nil
	surplus, err := g.surplus()
	if err != nil {
		return err
	}
	for _, pod := range g.pods {
		if slices.Contains(surplus, pod) && pod.DeletionTimestamp == nil {
			if err := c.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		if over || pod.DeletionTimestamp != nil || slices.Contains(surplus, pod) || g.replaced(pod) {
			if err := letGo(ctx, c, pod); err != nil {
				return err
			}
		}
	}
	if over || g.name == "" && len(wl.OwnerReferences) > 0 {
		return nil
	}
	owned := wl.DeepCopy()
	g.own(owned)
	if len(owned.OwnerReferences) == len(wl.OwnerReferences) {
		return nil
	}
	return c.Update(ctx, owned)
}

// surplus are waiting pods beyond the group's total, the newest.
func (g *podGroup) surplus() ([]*corev1.Pod, error) {
	if g.name == "" || g.serving() {
		return nil, nil
	}
	total, err := g.total()
	if err != nil {
		return nil, err
	}
	var counted int
	var out []*corev1.Pod
	for _, waiting := range []bool{false, true} {
		for _, pod := range g.pods {
			counts := live(pod) || pod.Status.Phase == corev1.PodSucceeded
			if !counts || (live(pod) && gated(pod)) != waiting {
				continue
			}
			if counted++; counted > total && waiting {
				out = append(out, pod)
			}
		}
	}
	return out, nil
}

// replaced says a failed pod has a younger one in its place.
func (g *podGroup) replaced(pod *corev1.Pod) bool {
	if g.name == "" || pod.Status.Phase != corev1.PodFailed {
		return false
	}
	total, err := g.total()
	if err != nil {
		return false
	}
	others := 0
	for _, other := range g.pods {
		if live(other) || other.Status.Phase == corev1.PodSucceeded {
			others++
		}
	}
	return others >= total
}

// letDeletedGo lets go of pods that are deleted, where no workload will see to it.
func (g *podGroup) letDeletedGo(ctx context.Context, c client.Client) error {
	for _, pod := range g.pods {
		if pod.DeletionTimestamp == nil {
			continue
		}
		if err := letGo(ctx, c, pod); err != nil {
			return err
		}
	}
	return nil
}

// letGo removes the finalizer that kept the pod visible until its end was
// taken note of.
func letGo(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	if !controllerutil.ContainsFinalizer(pod, ManagedLabel) {
		return nil
	}
	free := pod.DeepCopy()
	controllerutil.RemoveFinalizer(free, ManagedLabel)
	return client.IgnoreNotFound(c.Patch(ctx, free, lockedMerge(pod)))
}

func (g *podGroup) workloadName() string {
	if name := PrebuiltName(g.pods[0]); name != "" {
		return name
	}
	if g.name != "" {
		return g.name
	}
	return workloadName(g.kind.GVK, g.pods[0].Name, g.pods[0].UID)
}

func (g *podGroup) own(wl *kueue.Workload) {
	if g.name == "" {
		wl.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(g.pods[0], g.kind.GVK)}
		setLabel(wl, JobUIDLabel, string(g.pods[0].UID))
		return
	}
	if g.parent != nil {
		wl.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(g.parent.Unstructured, g.parent.kind.GVK)}
	} else {
		for _, pod := range g.pods {
			has := slices.ContainsFunc(wl.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == pod.UID })
			if !has {
				wl.OwnerReferences = append(wl.OwnerReferences, metav1.OwnerReference{
					APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
				})
			}
		}
	}
	wl.Annotations = maps.Clone(wl.Annotations)
	if wl.Annotations == nil {
		wl.Annotations = map[string]string{}
	}
	wl.Annotations[IsGroupAnnotation] = "true"
}

// findParent fetches the object that tells what a group asks for.
func (g *podGroup) findParent(ctx context.Context, c client.Reader, kind *Kind) error {
	vars, err := podVars(g.pods[0])
	if err != nil {
		return err
	}
	name, err := kind.group.object.text(vars)
	if err != nil {
		return err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind.GVK)
	err = c.Get(ctx, client.ObjectKey{Namespace: g.pods[0].Namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		g.parentGone = true
		return nil
	}
	if err == nil {
		g.parent = &object{obj, kind}
	}
	return err
}
