package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// problem is something that keeps a policy, or a part of it, from taking effect.
type problem struct {
	reason, message string
}

// reasons in the order in which they give the condition its name.
var reasons = []string{
	v1alpha1.ReasonInvalid, v1alpha1.ReasonConflicted, v1alpha1.ReasonTargetNotFound, v1alpha1.ReasonNoEffect,
}

// Status is what to tell a policy about itself: what is in force at each target, and whether all of it is.
func (r *Resolved) Status(p *v1alpha1.QueuePolicy) ([]v1alpha1.TargetStatus, metav1.Condition) {
	problems := append(invalid(p), r.unknownFlavors(p)...)
	var targets []v1alpha1.TargetStatus
	for i, ref := range p.Spec.TargetRefs {
		t := targetOf(ref)
		status := v1alpha1.TargetStatus{Target: t.String(), InForce: r.at(t)}
		found := r.problemAt(p, t)
		for _, one := range found {
			problems = append(problems, problem{one.reason, fmt.Sprintf("spec.targetRefs[%d]: %s", i, one.message)})
		}
		status.Problem = messages(found)
		targets = append(targets, status)
	}
	condition := metav1.Condition{
		Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted,
		Message: "In force at all targets", ObservedGeneration: p.Generation,
	}
	if len(problems) > 0 {
		condition.Status, condition.Message = metav1.ConditionFalse, messages(problems)
		condition.Reason = first(problems)
	}
	return targets, condition
}

// invalid are the values of a policy that are wrong: rules in the CRD refuse them, where it is the newest.
func invalid(p *v1alpha1.QueuePolicy) []problem {
	var found []problem
	for i := range fields {
		f := &fields[i]
		if f.text(&p.Spec) != "" {
			if err := f.problem(&p.Spec); err != nil {
				found = append(found, problem{v1alpha1.ReasonInvalid, "spec." + f.path + ": " + err.Error()})
			}
		}
	}
	return found
}

// Check says what is wrong with the values of a spec.
func Check(s *v1alpha1.QueuePolicySpec) error {
	if found := invalid(&v1alpha1.QueuePolicy{Spec: *s}); len(found) > 0 {
		return errors.New(messages(found))
	}
	return nil
}

// problemAt is why a policy, or some of its fields, do not count at a target.
func (r *Resolved) problemAt(p *v1alpha1.QueuePolicy, t target) []problem {
	if has := r.counts[t]; has != nil && has.Name != p.Name {
		return []problem{{v1alpha1.ReasonConflicted, fmt.Sprintf("%s has an older policy, %s", t, has.Name)}}
	}
	if !r.exists(t) {
		return []problem{{v1alpha1.ReasonTargetNotFound, fmt.Sprintf("there is no %s", t)}}
	}
	var found []problem
	for i := range fields {
		f := &fields[i]
		if f.text(&p.Spec) != "" && !r.means(f, t) && !r.meansElsewhere(p, f) {
			found = append(found, problem{v1alpha1.ReasonNoEffect, fmt.Sprintf("spec.%s means something %s alone, and %s is none", f.path, f.where, t)})
		}
	}
	return append(found, r.contradictions(p, t)...)
}

// contradictions are fields of a policy that come to nothing at a queue, by its spec or by what else is in force there. At
// a Cohort they may mean something for one of the queues below it.
func (r *Resolved) contradictions(p *v1alpha1.QueuePolicy, t target) (found []problem) {
	cq := t.name.Name
	switch t.kind {
	case v1alpha1.KindCohort:
		return nil
	case v1alpha1.KindLocalQueue:
		cq = r.world.LocalQueues[t.name]
	}
	add := func(path, format string, args ...any) {
		found = append(found, problem{v1alpha1.ReasonNoEffect, "spec." + path + ": " + fmt.Sprintf(format, args...)})
	}
	if p.Spec.ElasticJobs != nil && r.world.PreemptNobody[cq] {
		add(GrowAfter, "ClusterQueue %s preempts nobody of its own (withinClusterQueue), so what jobs grow into could not be taken back", cq)
	}
	if q := p.Spec.Quota; q != nil && (q.Headroom != nil || q.Grace != nil) && t.kind == v1alpha1.KindClusterQueue && !r.followsNodes(t) {
		for path, set := range map[string]bool{Headroom: q.Headroom != nil, Grace: q.Grace != nil} {
			if set {
				add(path, "no quota of %s is a share of nodes (%s)", t, ShareOfNodes)
			}
		}
		slices.SortFunc(found, func(a, b problem) int { return strings.Compare(a.message, b.message) })
	}
	return found
}

// followsNodes says that quotas of a ClusterQueue are shares of what nodes have, always or in a window.
func (r *Resolved) followsNodes(t target) bool {
	for _, v := range r.at(t) {
		switch v.Field {
		case ShareOfNodes:
			return true
		case Windows:
			i := slices.IndexFunc(r.path(t), func(above target) bool { return above.String() == v.From })
			if i < 0 {
				continue
			}
			by := r.counts[r.path(t)[i]]
			if slices.ContainsFunc(quota(&by.Spec).Windows, func(w v1alpha1.Window) bool { return w.ShareOfNodes != nil }) {
				return true
			}
		}
	}
	return false
}

// meansElsewhere says whether a field of a policy means something at one of its targets: then it need not at the others.
func (r *Resolved) meansElsewhere(p *v1alpha1.QueuePolicy, f *field) bool {
	for _, ref := range p.Spec.TargetRefs {
		if t := targetOf(ref); r.exists(t) && r.means(f, t) {
			return true
		}
	}
	return false
}

func first(problems []problem) string {
	for _, reason := range reasons {
		for _, p := range problems {
			if p.reason == reason {
				return reason
			}
		}
	}
	return v1alpha1.ReasonInvalid
}

// longestMessage is the most that a condition may say.
const longestMessage = 32768

func messages(problems []problem) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.message
	}
	return Truncate(strings.Join(texts, "; "))
}

// Truncate makes a message no longer than a condition may have.
func Truncate(text string) string { return text[:min(len(text), longestMessage)] }
