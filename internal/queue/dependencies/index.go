package dependencies

import (
	"slices"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Index is who comes after whom. The zero value knows nothing, and is told of nobody until somebody comes after another:
// who does not use dependencies pays nothing for them.
type Index struct {
	nodes map[admission.Key]*node
	// named are the workloads by what others may call them, and waiting those that wait, by what they wait for.
	named   map[name][]*node
	waiting map[name]map[admission.Key]bool
	// cycles are the members of the cycle that a workload is in.
	cycles map[admission.Key][]admission.Key
}

// name is what a workload can be called by: its own, or that of its job.
type name struct{ kind, namespace, name string }

// node is a workload.
type node struct {
	key     admission.Key
	created time.Time
	seen    seen
	names   []name
	unmet   []unmet
	ended   []workload.IndexRange
	invalid string
}

// seen is what a node was made from; one that has not changed in this is as it was.
type seen struct {
	after, met      string
	queue           kueue.LocalQueueName
	outcome         workload.Outcome
	indexes         string // how some of its indexes ended
	owners          int
	reserved, slice bool
}

// unmet is a dependency that has not come true; forbidden, if no policy lets the workload wait for it.
type unmet struct {
	workload.Dependency
	forbidden bool
}

func (u unmet) name() name { return name{u.Kind, u.Namespace, u.Name} }

// Policy says whether workloads of a LocalQueue may wait for those of another namespace.
type Policy func(wl *kueue.Workload, namespace string) bool

// Uses says that somebody comes after another.
func (x *Index) Uses() bool { return x.nodes != nil }

// Use begins to take workloads in.
func (x *Index) Use() {
	x.nodes, x.named = map[admission.Key]*node{}, map[name][]*node{}
	x.waiting, x.cycles = map[name]map[admission.Key]bool{}, map[admission.Key][]admission.Key{}
}

// Asks says that a workload comes after others, or did.
func Asks(wl *kueue.Workload) bool { return wl.Annotations[v1alpha1.AfterAnnotation] != "" }

// Set takes a workload in, and returns the waiting ones for which that changes something.
func (x *Index) Set(wl *kueue.Workload, may Policy) []admission.Key {
	key, is := workload.KeyOf(wl), sight(wl)
	was := x.nodes[key]
	if was != nil && was.seen == is {
		return nil
	}
	n := newNode(wl, is, may)
	touched := x.remove(was)
	x.add(n)
	if was == nil || was.seen.outcome != is.outcome || was.seen.indexes != is.indexes || was.seen.owners != is.owners {
		touched = append(touched, x.after(was, n)...)
	}
	if len(n.unmet) > 0 {
		touched = append(touched, key)
	}
	return x.review(touched, key)
}

// Gone forgets a workload that was deleted, and returns those for which that changes something.
func (x *Index) Gone(key admission.Key) []admission.Key {
	was := x.nodes[key]
	if was == nil {
		return nil
	}
	touched := x.remove(was)
	return x.review(append(touched, x.after(was)...), key)
}

// Recheck asks again what workloads that wait for others of other namespaces may wait for, and returns those for which
// the answer is another one. object is a workload by its key.
func (x *Index) Recheck(object func(admission.Key) *kueue.Workload, may Policy) []admission.Key {
	var touched []admission.Key
	for key, n := range x.nodes {
		abroad := slices.ContainsFunc(n.unmet, func(u unmet) bool { return u.Namespace != key.Namespace })
		if wl := object(key); abroad && wl != nil {
			now := newNode(wl, n.seen, may)
			if !slices.Equal(now.unmet, n.unmet) {
				touched = append(touched, x.remove(n)...)
				x.add(now)
				touched = append(touched, key)
			}
		}
	}
	return x.review(touched, touched...)
}

func sight(wl *kueue.Workload) seen {
	is := seen{outcome: workload.OutcomeOf(wl), indexes: wl.Annotations[v1alpha1.EndedIndexesAnnotation], owners: len(wl.OwnerReferences)}
	if Asks(wl) {
		is.after, is.met = wl.Annotations[v1alpha1.AfterAnnotation], wl.Annotations[v1alpha1.AfterMetAnnotation]
		is.queue = wl.Spec.QueueName
		is.reserved, is.slice = workload.HasReservation(wl), workload.Replaces(wl).Name != ""
	}
	return is
}

func newNode(wl *kueue.Workload, is seen, may Policy) *node {
	n := &node{key: workload.KeyOf(wl), created: wl.CreationTimestamp.Time, seen: is, ended: workload.ReadEndedIndexes(is.indexes)}
	if is.outcome != workload.Gone {
		n.names = append(n.names, name{workload.KindWorkload, wl.Namespace, wl.Name})
		for i := range wl.OwnerReferences {
			if workload.IsExtra(wl) {
				break // of the job's own workload, which decides alone
			}
			owner := &wl.OwnerReferences[i]
			n.names = append(n.names, name{strings.ToLower(owner.Kind), wl.Namespace, owner.Name})
		}
	}
	list, err := workload.UnmetDependencies(wl)
	if err != nil {
		n.invalid = err.Error()
	}
	for _, d := range list {
		n.unmet = append(n.unmet, unmet{d, d.Namespace != wl.Namespace && !may(wl, d.Namespace)})
	}
	return n
}

func (x *Index) add(n *node) {
	x.nodes[n.key] = n
	for _, is := range n.names {
		x.named[is] = append(x.named[is], n)
	}
	for _, u := range n.unmet {
		if x.waiting[u.name()] == nil {
			x.waiting[u.name()] = map[admission.Key]bool{}
		}
		x.waiting[u.name()][n.key] = true
	}
}

// remove takes a node out, and returns the members of its cycle, which is to be looked for again.
func (x *Index) remove(n *node) []admission.Key {
	if n == nil {
		return nil
	}
	delete(x.nodes, n.key)
	for _, is := range n.names {
		x.named[is] = slices.DeleteFunc(x.named[is], func(o *node) bool { return o == n })
		if len(x.named[is]) == 0 {
			delete(x.named, is)
		}
	}
	for _, u := range n.unmet {
		delete(x.waiting[u.name()], n.key)
		if len(x.waiting[u.name()]) == 0 {
			delete(x.waiting, u.name())
		}
	}
	return x.dissolve(n.key)
}

// after are the workloads that wait for one of these.
func (x *Index) after(nodes ...*node) []admission.Key {
	var keys []admission.Key
	for _, n := range nodes {
		if n == nil {
			continue
		}
		for _, is := range n.names {
			for key := range x.waiting[is] {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
