package world

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/placer"
	"github.com/elastic-ai/elastic/internal/queue/policy"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Standing is where a job stands now and why, as elastic-queue answers in a cluster, with the names that the trace has.
func (w *World) Standing(job int) v1alpha1.WorkloadStanding {
	x := w.Explain(job)
	out := v1alpha1.WorkloadStanding{
		State: string(x.State), Reason: string(x.Reason), Message: w.named(x.Message), LocalQueue: w.localQueue(job).Name,
		ClusterQueue: x.Queue, Position: x.Position, Order: w.named(x.Order), Backfill: w.named(x.Backfill), Cost: x.Cost,
	}
	for _, text := range x.Suggestions {
		out.Suggestions = append(out.Suggestions, w.named(text))
	}
	if x.ExpectedCost != nil {
		out.ExpectedCost = strconv.FormatFloat(*x.ExpectedCost, 'f', 2, 64)
	}
	for _, key := range x.Ahead {
		out.Ahead = append(out.Ahead, w.ref(admission.Blocker{Workload: key, Queue: x.Queue}))
	}
	for _, b := range x.Blockers {
		out.HeldBy = append(out.HeldBy, w.ref(b))
	}
	for _, b := range x.PreemptionTargets {
		out.PreemptionTargets = append(out.PreemptionTargets, w.ref(b))
	}
	for i := range x.Missing {
		out.Missing = append(out.Missing, missing(&x.Missing[i]))
	}
	if !x.StartsAt.IsZero() {
		out.StartsAt = &metav1.Time{Time: x.StartsAt.UTC().Truncate(time.Second)}
	}
	switch {
	case w.jobs[job].phase == running:
		out.State = "Admitted" // checks answer at once
		for _, p := range w.placed[job] {
			addPods(&out, p)
		}
	case x.Would != nil:
		for _, set := range x.Would.PodSets {
			out.PodSets = append(out.PodSets, v1alpha1.PodSet{Name: set.Name, Count: set.Count, Flavors: set.Flavors})
		}
		for _, p := range placer.NodePlacements(x.Would.Placement) {
			addNode(&out, p)
		}
	}
	if w.jobs[job].phase != over {
		out.Policies = w.cluster.inForce(&w.trace.Jobs[job])
	}
	return out
}

// named is a text of the engine with the names that the trace has for jobs.
func (w *World) named(text string) string {
	return workloadName.ReplaceAllStringFunc(text, func(name string) string {
		if i := JobOf(admission.Key{Name: name[strings.LastIndexByte(name, '/')+1:]}); i < len(w.trace.Jobs) {
			return w.trace.Jobs[i].ID
		}
		return name
	})
}

// workloadName is the name that requests give.
var workloadName = regexp.MustCompile(`[^\s/]+/\d{9}\b`)

// Explain says why a job waits, as the engine sees it now.
func (w *World) Explain(job int) admission.Explanation {
	return w.engine.Explain(w.key(job), w.clock(w.now))
}

// Clock is the time of a second, as explanations have it.
func (w *World) Clock(at int64) time.Time { return w.clock(at) }

// ref names another job as the trace does.
func (w *World) ref(b admission.Blocker) v1alpha1.WorkloadRef {
	out := v1alpha1.WorkloadRef{Namespace: b.Workload.Namespace, Name: b.Workload.Name, ClusterQueue: b.Queue, Priority: b.Priority, Rule: string(b.Rule)}
	if i := JobOf(b.Workload); i >= 0 && i < len(w.trace.Jobs) {
		j := &w.trace.Jobs[i]
		out.Namespace, out.Job, out.Priority = "", j.ID, j.Priority
	}
	return out
}

func missing(m *admission.Missing) v1alpha1.Missing {
	out := v1alpha1.Missing{PodSet: m.PodSet, Resource: m.Resource, Flavor: m.Flavor, Reason: string(m.Reason)}
	if m.Resource != "" && m.Amount != 0 {
		q := workload.Quantity(corev1.ResourceName(m.Resource), m.Amount)
		out.Amount = q.String()
	}
	if m.AtCohort {
		out.Cohort = m.At
	} else {
		out.ClusterQueue = m.At
	}
	return out
}

// addPods that run on a node.
func addPods(to *v1alpha1.WorkloadStanding, p placer.NodePlacement) {
	for i := range to.PodSets {
		if to.PodSets[i].Name == p.PodSet {
			to.PodSets[i].Count += int32(p.Pods)
			addNode(to, p)
			return
		}
	}
	to.PodSets = append(to.PodSets, v1alpha1.PodSet{Name: p.PodSet, Count: int32(p.Pods)})
	addNode(to, p)
}

func addNode(to *v1alpha1.WorkloadStanding, p placer.NodePlacement) {
	for i := range to.PodSets {
		if set := &to.PodSets[i]; set.Name == p.PodSet {
			set.Nodes = append(set.Nodes, v1alpha1.Node{Name: p.Node, Pods: p.Pods, Cards: p.Cards})
		}
	}
}

// inForce is what policies say of a job's queue, and --set in their place.
func (c *Cluster) inForce(j *Job) []v1alpha1.PolicyValue {
	resolved := policy.Resolve(c.QueuePolicies, c.tree())
	settings := resolved.ClusterQueue(j.Queue)
	if j.Local != nil {
		settings = resolved.LocalQueue(namespaced(*j.Local))
	}
	var out []v1alpha1.PolicyValue
	said := c.said[j.Queue]
	for _, v := range settings {
		if _, again := said[v.Field]; !again {
			out = append(out, v1alpha1.PolicyValue(v))
		}
	}
	for _, field := range sortedKeys(said) {
		out = append(out, v1alpha1.PolicyValue{Field: field, Value: cmp.Or(said[field], off), Policy: "--set", From: string(queuepolicy.KindClusterQueue) + "/" + j.Queue})
	}
	return out
}

// says notes that a setting of a queue is the one of a QueuePolicy, for explanations.
func says(field string, set setter) setter {
	return func(c *Cluster, name, value string) (bool, error) {
		found, err := set(c, name, value)
		for i := range c.Queues {
			if q := c.Queues[i].Name; found && err == nil && (name == "*" || name == q) {
				if c.said[q] == nil {
					c.said[q] = map[string]string{}
				}
				c.said[q][field] = value
			}
		}
		return found, err
	}
}
