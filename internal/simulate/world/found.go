package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/placer"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Found is a job that is there when the simulation begins: it runs, or it waits.
type Found struct {
	object   *kueue.Workload
	workload admission.Workload // as elastic-queue sees it, with its quota if it has any
	waits    bool
	on       []onNode // where its pods are
	age, ran int64    // seconds, since it was created and since it was admitted
}

// onNode is pods of a set on a node.
type onNode struct {
	podSet, node string
	pods         int32
}

// find takes from the objects of a cluster what is there now: workloads that have quota or wait for it, as jobs, and pods
// that are in no queue, which have what they have to the end.
func (c *Cluster) find(workloads []*kueue.Workload, pods []*corev1.Pod, now time.Time) {
	names, owners := map[types.NamespacedName]*Found{}, map[types.UID]*Found{}
	for _, wl := range workloads {
		job, there := c.foundJob(wl, now)
		if !there {
			continue
		}
		if job.Found.waits {
			c.Waiting = append(c.Waiting, job)
		} else {
			c.Running = append(c.Running, job)
		}
		names[types.NamespacedName{Namespace: wl.Namespace, Name: wl.Name}] = job.Found
		for _, owner := range wl.OwnerReferences {
			owners[owner.UID] = job.Found
		}
	}
	slices.SortFunc(c.Running, func(a, b Job) int {
		return cmp.Or(b.Found.workload.Admission.ReservedAt.Compare(a.Found.workload.Admission.ReservedAt), strings.Compare(a.ID, b.ID))
	})
	slices.SortFunc(c.Waiting, func(a, b Job) int {
		return cmp.Or(cmp.Compare(b.Found.age, a.Found.age), strings.Compare(a.ID, b.ID))
	})
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		f := names[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Annotations[kueue.WorkloadAnnotation]}]
		if f == nil {
			f = owners[controllerOf(pod)]
		}
		if f == nil {
			c.Pods = append(c.Pods, pod)
			continue
		}
		f.note(pod)
	}
}

func controllerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return pod.UID // one of its own is its job
}

// foundJob is a workload as a job of a queue that is simulated; false for one that has ended or that nobody lets start.
func (c *Cluster) foundJob(wl *kueue.Workload, now time.Time) (Job, bool) {
	f := &Found{object: wl, workload: workload.ForEngine(wl, nil)}
	w := &f.workload
	f.waits = !workload.UsesQuota(wl) || workload.IsEvicted(wl) // what is evicted comes back
	since, queue := w.StartedAt, c.Aliases[wl.Namespace+"/"+string(wl.Spec.QueueName)]
	if !f.waits {
		queue = w.Admission.Queue
		if since.IsZero() {
			since = w.Admission.ReservedAt
		}
		f.ran = max(0, int64(now.Sub(since)/time.Second))
	}
	parent, _ := workload.ParentOf(wl) // which is the job, where this is a variant of it
	if parent.Name != "" || w.Finished || !c.Has(queue) || f.waits && (w.Inactive || w.Gated) {
		return Job{}, false
	}
	f.age = max(0, int64(now.Sub(w.Created)/time.Second))
	j := Job{
		ID: wl.Namespace + "/" + wl.Name, User: wl.Namespace, Queue: queue, Priority: w.Priority,
		Limit: int64(w.MaxRunTime / time.Second), Found: f, Local: c.localQueue(wl.Namespace + "/" + string(wl.Spec.QueueName)),
	}
	for i := range w.PodSets {
		ps := &w.PodSets[i]
		j.Cards = int32(min(int64(j.Cards)+ps.Asked(c.Cards), mostCards))
	}
	return j, true
}

// note where one of its pods is.
func (f *Found) note(pod *corev1.Pod) {
	set := pod.Labels[kueuelabels.PodSet]
	if set == "" && len(f.workload.PodSets) == 1 {
		set = f.workload.PodSets[0].Name
	}
	for i := range f.on {
		if f.on[i].podSet == set && f.on[i].node == pod.Spec.NodeName {
			f.on[i].pods++
			return
		}
	}
	f.on = append(f.on, onNode{podSet: set, node: pod.Spec.NodeName, pods: 1})
}

// Lengths are how long what is found in a cluster goes on, in seconds. Nobody knows it: with 0, what runs does so as long
// again as it has run so far, and what waits will run as long as it may at most, or, if it does not say, as long as
// the jobs of the trace do on average.
type Lengths struct{ Running, Waiting int64 }

// With is the trace with what is in the cluster at its start.
func (t *Trace) With(c *Cluster, left Lengths) *Trace {
	out := *t
	out.Jobs = nil
	start := int64(0)
	if len(t.Jobs) > 0 {
		start = t.Jobs[0].Submit
	}
	for _, j := range c.Running {
		j.Submit = start
		j.Duration = j.Found.ran + cmp.Or(left.Running, max(j.Found.ran, 1))
		out.Jobs = append(out.Jobs, j)
	}
	average := t.averageDuration()
	for _, j := range c.Waiting {
		j.Submit = start
		j.Duration = cmp.Or(left.Waiting, j.Limit, average)
		out.Jobs = append(out.Jobs, j)
	}
	out.Jobs = append(out.Jobs, t.Jobs...)
	return &out
}

// averageDuration of the jobs, at least a second.
func (t *Trace) averageDuration() int64 {
	var sum int64
	for i := range t.Jobs {
		sum += t.Jobs[i].Duration
	}
	return max(1, sum/int64(max(1, len(t.Jobs))))
}

// findJobs begins with the jobs that are there already, which come first in the trace.
func (w *World) findJobs() {
	for ; w.next < len(w.jobs) && w.trace.Jobs[w.next].Found != nil; w.next++ {
		if w.found++; w.trace.Jobs[w.next].Found.waits {
			w.foundWaiting++
			w.submit(w.next)
		} else {
			w.find(w.next)
		}
	}
}

// find a job that runs, on its quota and on its nodes. One whose nodes are not simulated has its quota alone.
func (w *World) find(i int) {
	j, s := &w.trace.Jobs[i], &w.jobs[i]
	f := j.Found
	s.phase, s.run, s.left, s.since, s.started = running, 1, j.Duration, w.now-f.ran, w.now-f.ran
	s.ran = int64(f.workload.RanBefore / time.Second)
	wl := w.workload(i)
	request := admission.PlaceRequest{Workload: wl.Key}
	wl.PodSets, request.PodSets = f.whereTheyAre(w.cluster.Flavors)
	wl.Admission = &admission.Admission{Queue: j.Queue, ReservedAt: w.clock(s.since), PodSets: f.assigned(request.PodSets)}
	wl.StartedAt, wl.PodsReady = w.clock(s.since), true
	if placed, refusal := w.placer.Place(request); refusal == nil {
		wl.Admission.Placement = placed
		w.occupy(i, placer.NodePlacements(placed))
	}
	w.learned.submitted(w, i)
	w.learned.started(i, &wl)
	w.engine.Apply(admission.WorkloadChanged{Workload: wl})
	w.policies.started(w, i, wl.Admission)
	w.figures.wait(w, i)
	w.figures.start(w, i)
	w.ends(i, w.now+max(1, s.left-f.ran))
}

// whereTheyAre is its pod sets with a set for each node that has pods of it, and what to ask of the placer for them.
func (f *Found) whereTheyAre(flavors []admission.Flavor) ([]admission.PodSet, []admission.PlacePodSet) {
	var sets []admission.PodSet
	var counts []int32
	for _, ps := range f.workload.PodSets {
		ps.Topology, ps.Group, ps.MinCount = nil, "", 0
		left := ps.Left()
		ps.Reclaimable = 0
		for _, at := range f.on {
			if n := min(at.pods, left); at.podSet == ps.Name && n > 0 {
				there := ps
				there.Name = fmt.Sprintf("%s@%s", ps.Name, at.node)
				there.Count = n
				there.NodeSelector = maps.Clone(ps.NodeSelector)
				if there.NodeSelector == nil {
					there.NodeSelector = map[string]string{}
				}
				there.NodeSelector[corev1.LabelHostname] = at.node
				there.Tolerations = append(slices.Clip(there.Tolerations), admission.Toleration{Operator: string(corev1.TolerationOpExists)}) // it is there
				sets, counts = append(sets, there), append(counts, n)
				left -= n
			}
		}
		if left > 0 {
			ps.Count = left
			sets, counts = append(sets, ps), append(counts, left)
		}
	}
	ask := make([]admission.PlacePodSet, len(sets))
	for i := range sets {
		ask[i] = admission.PlacePodSet{Spec: &sets[i], Count: counts[i]}
		assigned := f.assignmentOf(sets[i].Name)
		if assigned == nil {
			continue
		}
		for _, name := range slices.Compact(slices.Sorted(maps.Values(assigned.Flavors))) {
			if at := slices.IndexFunc(flavors, func(f admission.Flavor) bool { return f.Name == name }); at >= 0 {
				ask[i].Flavors = append(ask[i].Flavors, &flavors[at])
			}
		}
	}
	return sets, ask
}

// assignmentOf is what the set was given that a set on a node is a part of.
func (f *Found) assignmentOf(set string) *admission.PodSetAssignment {
	name, _, _ := strings.Cut(set, "@")
	for i := range f.workload.Admission.PodSets {
		if a := &f.workload.Admission.PodSets[i]; a.Name == name {
			return a
		}
	}
	return nil
}

// assigned is its quota, shared out among the sets on nodes.
func (f *Found) assigned(sets []admission.PlacePodSet) []admission.PodSetAssignment {
	var out []admission.PodSetAssignment
	for _, set := range sets {
		a := f.assignmentOf(set.Spec.Name)
		if a == nil {
			continue
		}
		part := admission.PodSetAssignment{Name: set.Spec.Name, Count: set.Count, Flavors: a.Flavors, Usage: admission.Requests{}}
		for name, amount := range a.Usage {
			part.Usage[name] = amount * int64(set.Count) / int64(max(a.Count, 1))
		}
		out = append(out, part)
	}
	return out
}
