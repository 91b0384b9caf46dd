package world

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/queue/budget"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/quotarules"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// FromObjects is the cluster that objects of Kubernetes, Kueue and QueuePolicies describe, read as elastic-queue reads them
// with these options, and what runs and waits in it now. Admission checks are left out: in a simulation they answer at once.
func FromObjects(objects []client.Object, options admission.Options, now time.Time) (*Cluster, error) {
	c := &Cluster{Options: options, Cards: CardResource, Aliases: map[string]string{}, Policies: map[string][]string{}, Targets: map[string][]queuepolicy.TargetRef{}, QuotaRecords: map[string]string{}, Accounts: map[types.NamespacedName]Account{}, strict: map[string]bool{}, Ambiguous: map[string][]string{}}
	known := engineview.NewObjects()
	known.Timing = options.Timing()
	for _, obj := range objects {
		known.Set(obj, false)
	}
	known.ResolvePolicies()
	var workloads []*kueue.Workload
	var pods []*corev1.Pod
	var unusable []string // nodes
	c.Cohorts = known.UndescribedCohorts()
	for _, obj := range objects {
		switch o := obj.(type) {
		case *corev1.Node:
			if quotarules.IsUsable(o) {
				c.Nodes = append(c.Nodes, nodeOf(o))
			} else {
				unusable = append(unusable, o.Name)
			}
		case *kueue.ClusterQueue:
			q := known.Queue(o)
			q.Inactive = false
			c.strict[q.Name] = o.Spec.QueueingStrategy == kueue.StrictFIFO
			c.Queues = append(c.Queues, q)
			c.QuotaRecords[o.Name] = o.Annotations[quotarules.Annotation]
		case *kueue.LocalQueue:
			c.alias(o)
			c.Aliases[o.Namespace+"/"+o.Name] = string(o.Spec.ClusterQueue)
			if event, ok := known.WithPolicy(engineview.ChangedEvent(o)).(admission.LocalQueueChanged); ok {
				c.LocalQueues = append(c.LocalQueues, event.LocalQueue)
			}
		case *kueue.Cohort, *kueue.ResourceFlavor:
			switch event := known.WithPolicy(engineview.ChangedEvent(o)).(type) {
			case admission.CohortChanged:
				c.Cohorts = append(c.Cohorts, event.Cohort)
			case admission.FlavorChanged:
				c.Flavors = append(c.Flavors, event.Flavor)
			}
		case *queuepolicy.QueuePolicy:
			c.Policies[o.Name], c.Targets[o.Name] = queuesUnder(known, o), o.Spec.TargetRefs
			c.QueuePolicies = append(c.QueuePolicies, o)
		case *queuepolicy.BudgetAccount:
			of := types.NamespacedName{Namespace: o.Spec.Namespace, Name: o.Spec.LocalQueue}
			c.Accounts[of] = Account{Stored: budget.FromStored(&o.Status)}
		case *kueue.Topology:
			c.Topologies = append(c.Topologies, o)
		case *kueue.Workload:
			if workloads = append(workloads, o); workload.RanFor(o) > 0 {
				c.Ended = append(c.Ended, o)
			}
		case *corev1.Pod:
			pods = append(pods, o)
		}
	}
	if len(unusable) > 0 {
		c.Note(fmt.Sprintf("%s left out, as no pod can start there now: %s", number(int64(len(unusable)), "node is", "nodes are"), join(unusable, 5)))
	}
	c.Budgets, c.Reservations = known.Budgets(), known.Reservations()
	c.findRuns(workloads)
	c.find(workloads, pods, now)
	for i := range c.Queues {
		if nominalOf(c.Queues[i].Groups, c.Cards) > 0 {
			return c, nil
		}
	}
	return nil, errors.New("no ClusterQueue has quota for " + c.Cards + ": whole cards are what is simulated")
}

// alias is a LocalQueue's name without its namespace, if it stands for one ClusterQueue alone.
func (c *Cluster) alias(l *kueue.LocalQueue) {
	other, known := c.Aliases[l.Name]
	_, ambiguous := c.Ambiguous[l.Name]
	if !ambiguous && (!known || other == string(l.Spec.ClusterQueue)) {
		c.Aliases[l.Name] = string(l.Spec.ClusterQueue)
		return
	}
	if !ambiguous {
		if first := c.localQueue(l.Name); first != nil {
			c.Ambiguous[l.Name] = []string{first.String()}
		}
		delete(c.Aliases, l.Name)
	}
	c.Ambiguous[l.Name] = append(c.Ambiguous[l.Name], l.Namespace+"/"+l.Name)
}

// findRuns takes in the runs that workloads tell of and that are over; the accounts may not have them yet.
func (c *Cluster) findRuns(workloads []*kueue.Workload) {
	for _, wl := range workloads {
		if !workload.TellsRuns(wl) {
			continue
		}
		if run, local := workload.LastRun(wl); run != nil && !run.End.IsZero() {
			of := types.NamespacedName{Namespace: wl.Namespace, Name: local}
			a := c.Accounts[of]
			a.Runs = append(a.Runs, *run)
			c.Accounts[of] = a
		}
	}
}

// queuesUnder are the ClusterQueues that a policy names, or that are below a Cohort that it names.
func queuesUnder(known *engineview.Objects, p *queuepolicy.QueuePolicy) []string {
	var names []string
	for name := range known.ClusterQueues {
		above := known.CohortsAbove(name)
		if slices.ContainsFunc(p.Spec.TargetRefs, func(t queuepolicy.TargetRef) bool {
			return t.Kind == queuepolicy.KindClusterQueue && t.Name == name || t.Kind == queuepolicy.KindCohort && slices.Contains(above, t.Name)
		}) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// nodeOf a Node object.
func nodeOf(o *corev1.Node) Node {
	cards := o.Status.Allocatable[egpu.ResourceWhole]
	return Node{
		Name: o.Name, Cards: int(cards.Value()), Model: cmp.Or(o.Labels[egpu.ModelLabel], o.Labels[productLabel]), Labels: o.Labels,
		CPU: o.Status.Allocatable.Cpu().MilliValue(), Memory: o.Status.Allocatable.Memory().Value(), Taints: o.Spec.Taints,
	}
}

// ReadOptions reads the engine's options from elastic-queue's configuration.
func ReadOptions(document []byte) (admission.Options, error) {
	cfg := v1alpha1.NewQueueConfiguration()
	if err := yaml.UnmarshalStrict(document, cfg); err != nil {
		return admission.Options{}, err
	}
	gates, err := features.New(cfg.FeatureGates)
	if err != nil {
		return admission.Options{}, err
	}
	return engineview.Options(cfg, gates)
}
