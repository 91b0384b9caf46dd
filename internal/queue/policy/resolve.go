package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// World is what policies are about: which objects there are, and what is above each.
type World struct {
	Cohorts       map[string]string               // the parent of each Cohort; "" at a root
	ClusterQueues map[string]string               // the Cohort of each ClusterQueue; "": none
	LocalQueues   map[types.NamespacedName]string // the ClusterQueue of each LocalQueue
	Flavors       map[string]bool                 // those that exist
	PreemptNobody map[string]bool                 // ClusterQueues that preempt nobody of their own
}

// Settings are the values in force at an object, in the order of the fields.
type Settings []v1alpha1.Value

// Text is the value of a field; "" if no policy sets it.
func (s Settings) Text(path string) string {
	for i := range s {
		if s[i].Field == path {
			return s[i].Value
		}
	}
	return ""
}

// Duration is the value of a field that is a time span, or what it is without a policy.
func (s Settings) Duration(path string, without time.Duration) time.Duration {
	text := s.Text(path)
	if text == "" {
		return without
	}
	d, err := parse(text)
	if err != nil {
		return without
	}
	return d
}

// Resolved is what is in force everywhere.
type Resolved struct {
	world World
	// counts is the policy that counts at each target.
	counts map[target]*v1alpha1.QueuePolicy
}

// target is an object that a policy is about.
type target struct {
	kind v1alpha1.TargetKind
	name types.NamespacedName
}

func (t target) String() string {
	if t.name.Namespace != "" {
		return string(t.kind) + "/" + t.name.Namespace + "/" + t.name.Name
	}
	return string(t.kind) + "/" + t.name.Name
}

func targetOf(ref v1alpha1.TargetRef) target {
	return target{ref.Kind, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}}
}

// Resolve finds the policy that counts at each target: of several, the oldest.
func Resolve(policies []*v1alpha1.QueuePolicy, world World) *Resolved {
	r := &Resolved{world: world, counts: map[target]*v1alpha1.QueuePolicy{}}
	for _, p := range policies {
		for _, ref := range p.Spec.TargetRefs {
			t := targetOf(ref)
			if has := r.counts[t]; has == nil || older(p, has) {
				r.counts[t] = p
			}
		}
	}
	return r
}

// older says whether a counts where a and b have the same target.
func older(a, b *v1alpha1.QueuePolicy) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name)) < 0
}

// Any says that some policy is in force somewhere.
func (r *Resolved) Any() bool { return len(r.counts) > 0 }

// Targets says that a policy is about this LocalQueue itself, and not only about what is above it.
func (r *Resolved) Targets(localQueue types.NamespacedName) bool {
	return r.counts[target{v1alpha1.KindLocalQueue, localQueue}] != nil
}

// LocalQueue is what is in force at a LocalQueue.
func (r *Resolved) LocalQueue(name types.NamespacedName) Settings {
	return r.at(target{v1alpha1.KindLocalQueue, name})
}

// ClusterQueue is what is in force at a ClusterQueue.
func (r *Resolved) ClusterQueue(name string) Settings {
	return r.at(target{v1alpha1.KindClusterQueue, types.NamespacedName{Name: name}})
}

// Cohort is what is in force at a Cohort.
func (r *Resolved) Cohort(name string) Settings {
	return r.at(target{v1alpha1.KindCohort, types.NamespacedName{Name: name}})
}

// at looks every field up from a target outwards.
func (r *Resolved) at(from target) Settings {
	if len(r.counts) == 0 {
		return nil
	}
	path := r.path(from)
	var out Settings
	for i := range fields {
		f := &fields[i]
		for _, t := range path {
			p := r.counts[t]
			if p == nil || !r.means(f, t) {
				continue
			}
			if text := f.text(&p.Spec); text != "" && f.problem(&p.Spec) == nil {
				out = append(out, v1alpha1.Value{Field: f.path, Value: text, Policy: p.Name, From: t.String()})
				if !f.sums {
					break
				}
			}
		}
	}
	return out
}

// means says whether a field means something at a target.
func (r *Resolved) means(f *field, t target) bool {
	_, below := r.above(t)
	return f.from == nil || f.from(t.kind, t.kind == v1alpha1.KindCohort && !below)
}

// path is an object and all that is above it, up to the root. Cohorts in a cycle have no root: each is listed once.
func (r *Resolved) path(from target) []target {
	path := []target{from}
	for {
		above, found := r.above(path[len(path)-1])
		if !found || slices.Contains(path, above) {
			return path
		}
		path = append(path, above)
	}
}

func (r *Resolved) above(t target) (target, bool) {
	kind, name := v1alpha1.KindCohort, ""
	switch t.kind {
	case v1alpha1.KindLocalQueue:
		kind, name = v1alpha1.KindClusterQueue, r.world.LocalQueues[t.name]
	case v1alpha1.KindClusterQueue:
		name = r.world.ClusterQueues[t.name.Name]
	case v1alpha1.KindCohort:
		name = r.world.Cohorts[t.name.Name]
	}
	return target{kind, types.NamespacedName{Name: name}}, name != ""
}

// exists says whether there is such an object.
func (r *Resolved) exists(t target) bool {
	found := false
	switch t.kind {
	case v1alpha1.KindLocalQueue:
		_, found = r.world.LocalQueues[t.name]
	case v1alpha1.KindClusterQueue:
		_, found = r.world.ClusterQueues[t.name.Name]
	case v1alpha1.KindCohort:
		_, found = r.world.Cohorts[t.name.Name]
	}
	return found
}
