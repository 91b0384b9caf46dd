package world

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

// What a QueuePolicy says of budgets, reservations and defragmentation is set as there, and checked by the same rules:
//
//	budget=AMOUNT/PERIOD[/Drain]       of GPU-hours, or of what the budget of the period is of that is there; off: none
//	reservation=CARDS@START+DURATION   START is a time of the trace, a date, or as in a CronJob; off: none
//	defragmentation=MOVES/LOSTWORK     off: none
//	shareOfNodes=PERCENT[/GRACE]       of what nodes have, as nominal quota; off: as declared
//	headroom=PERCENT                   of what nodes have, that is handed out to nobody; off: none
//	window=CARDS@START+DURATION        another nominal quota at times as in a CronJob; off: none
//	runTime=TIME                       of jobs that do not say; off: nobody knows
//	quantile=PERCENT                   learns run times; off: not

// ofPolicies are the settings that a QueuePolicy has at its targets, and not at the queues below them.
var ofPolicies = map[string]setter{
	"budget":      ofTargets((*Cluster).setBudget),
	"reservation": ofTargets((*Cluster).setReservation),
	"runtime":     ofTargets(atPolicy(setRunTime)),
	"quantile":    ofTargets(atPolicy(setQuantile)),
}

func ofTargets(set func(*Cluster, queuepolicy.TargetRef, string) error) setter {
	return func(c *Cluster, name, value string) (bool, error) {
		targets := c.Targets[name]
		for _, on := range targets {
			if err := set(c, on, value); err != nil {
				return true, err
			}
		}
		return len(targets) > 0, nil
	}
}

func ofLocalQueue(set func(*Cluster, queuepolicy.TargetRef, string) error) setter {
	return func(c *Cluster, name, value string) (bool, error) {
		for i := range c.LocalQueues {
			if key := c.LocalQueues[i].Key; key.String() == name {
				return true, set(c, queuepolicy.TargetRef{Kind: queuepolicy.KindLocalQueue, Namespace: key.Namespace, Name: key.Name}, value)
			}
		}
		return false, nil
	}
}

func ofQueue(q *admission.Queue) queuepolicy.TargetRef {
	return queuepolicy.TargetRef{Kind: queuepolicy.KindClusterQueue, Name: q.Name}
}

func setCohortBudget(c *Cluster, name, value string) (bool, error) {
	if _, exists := c.tree().Cohorts[name]; !exists || name == "" {
		return false, nil
	}
	return true, c.setBudget(queuepolicy.TargetRef{Kind: queuepolicy.KindCohort, Name: name}, value)
}

// setBudget changes the budget of a period that there is, or adds one in GPU-hours.
func (c *Cluster) setBudget(on queuepolicy.TargetRef, text string) error {
	if text == off {
		c.Budgets = slices.DeleteFunc(c.Budgets, func(b policy.Budget) bool { return b.On == on })
		return nil
	}
	parts := strings.Split(text, "/")
	amount, err := resource.ParseQuantity(parts[0])
	if err != nil || len(parts) < 2 || len(parts) > 3 {
		return fmt.Errorf("%q: want AMOUNT/Day, AMOUNT/Week or AMOUNT/Month, with /Drain behind it or not, or off", text)
	}
	next := policy.Budget{On: on, Policy: "--set"}
	next.Period = queuepolicy.BudgetPeriod(parts[1])
	at := slices.IndexFunc(c.Budgets, func(b policy.Budget) bool { return b.Name() == next.Name() })
	if at >= 0 {
		next = c.Budgets[at]
	}
	if next.Amount = amount; len(parts) == 3 {
		next.WhenSpent = queuepolicy.WhenSpent(parts[2])
	}
	if err := policy.Check(&queuepolicy.QueuePolicySpec{Budgets: []queuepolicy.Budget{next.Budget}}); err != nil {
		return err
	}
	if at >= 0 {
		c.Budgets[at] = next
	} else {
		c.Budgets = append(c.Budgets, next)
	}
	return nil
}

// off takes away what is set.
const off = "off"

// setReservation adds a reservation of cards, in the first flavor that has quota for them.
func (c *Cluster) setReservation(on queuepolicy.TargetRef, text string) error {
	if text == off {
		c.Reservations = slices.DeleteFunc(c.Reservations, func(r policy.Reservation) bool { return r.For == on })
		return nil
	}
	cards, when, _ := strings.Cut(text, "@")
	plus := strings.LastIndex(when, "+")
	amount, err := resource.ParseQuantity(cards)
	if err != nil || plus < 0 {
		return fmt.Errorf("%q: want CARDS@START+DURATION, as 16@24h+8h, 16@2026-12-01T08:00+8h or 16@0 8 * * 1-5+8h, or off", text)
	}
	start, lasts := when[:plus], when[plus+1:]
	if after, err := time.ParseDuration(start); err == nil {
		start = c.begins().Add(after).Format("2006-01-02T15:04:05")
	}
	flavor, err := c.flavorOfCards(on)
	if err != nil {
		return err
	}
	next := policy.Reservation{For: on, Policy: "--set", Reservation: queuepolicy.Reservation{
		Name: fmt.Sprintf("set-%d", len(c.Reservations)+1), Start: start, Duration: queuepolicy.Duration(lasts),
		Quotas: []queuepolicy.ReservedQuota{{Flavor: flavor, Resource: c.Cards, Amount: amount}},
	}}
	spec := queuepolicy.QueuePolicySpec{TargetRefs: []queuepolicy.TargetRef{on}, Reservations: []queuepolicy.Reservation{next.Reservation}}
	if err := policy.Check(&spec); err != nil {
		return err
	}
	c.Reservations = append(c.Reservations, next)
	return nil
}

// flavorOfCards is the first flavor in which the queue of a target has quota for cards.
func (c *Cluster) flavorOfCards(of queuepolicy.TargetRef) (string, error) {
	queue := of.Name
	if of.Kind == queuepolicy.KindLocalQueue {
		queue = c.Aliases[of.Namespace+"/"+of.Name]
	}
	for i := range c.Queues {
		for _, g := range c.Queues[i].Groups {
			for _, f := range g.Flavors {
				if _, has := f.Quotas[c.Cards]; has && c.Queues[i].Name == queue && of.Kind != queuepolicy.KindCohort {
					return f.Flavor, nil
				}
			}
		}
	}
	return "", fmt.Errorf("%s %s has no quota of %s", of.Kind, cmp.Or(queue, of.Name), c.Cards)
}

func setDefragmentation(_ *Cluster, q *admission.Queue, text string) error {
	if text == off {
		q.Defragmentation = nil
		return nil
	}
	moves, lost, _ := strings.Cut(text, "/")
	n, err := strconv.ParseInt(moves, 10, 32)
	if err != nil {
		return fmt.Errorf("%q: want MOVES/LOSTWORK, as 4/2h, or off", text)
	}
	spec := queuepolicy.QueuePolicySpec{Defragmentation: &queuepolicy.Defragmentation{Moves: ptr.To(int32(n)), LostWork: ptr.To(queuepolicy.Duration(lost))}}
	if err := policy.Check(&spec); err != nil {
		return err
	}
	d, err := time.ParseDuration(lost)
	q.Defragmentation = &admission.Defragmentation{Moves: int(n), LostWork: d}
	return err
}

// policyAt is the policy of --set at a target, in place of the one that is there.
func (c *Cluster) policyAt(on queuepolicy.TargetRef) *queuepolicy.QueuePolicySpec {
	next := &queuepolicy.QueuePolicy{}
	next.Name = "--set " + on.Namespace + "/" + on.Name
	next.Spec.TargetRefs = []queuepolicy.TargetRef{on}
	var first *queuepolicy.QueuePolicy
	for _, p := range c.QueuePolicies {
		if slices.Contains(p.Spec.TargetRefs, on) && (first == nil || p.CreationTimestamp.Before(&first.CreationTimestamp)) {
			first = p
		}
	}
	if first != nil {
		next.Spec.Quota, next.Spec.Backfill = first.Spec.Quota.DeepCopy(), first.Spec.Backfill.DeepCopy()
	}
	c.QueuePolicies = slices.DeleteFunc(c.QueuePolicies, func(p *queuepolicy.QueuePolicy) bool { return p.Name == next.Name })
	c.QueuePolicies = append([]*queuepolicy.QueuePolicy{next}, c.QueuePolicies...)
	if next.Spec.Quota == nil {
		next.Spec.Quota = &queuepolicy.Quota{}
	}
	if next.Spec.Backfill == nil {
		next.Spec.Backfill = &queuepolicy.Backfill{}
	}
	return &next.Spec
}

// ofQueuePolicy sets what the policy of a queue says.
func ofQueuePolicy(set ofPolicy) setter {
	return ofQueues(func(c *Cluster, q *admission.Queue, text string) error { return atPolicy(set)(c, ofQueue(q), text) })
}

// ofPolicy sets what a policy says of a target.
type ofPolicy func(c *Cluster, of *queuepolicy.QueuePolicySpec, on queuepolicy.TargetRef, text string) error

// atPolicy sets what the policy of a target says, if it makes sense.
func atPolicy(set ofPolicy) func(*Cluster, queuepolicy.TargetRef, string) error {
	return func(c *Cluster, on queuepolicy.TargetRef, text string) error {
		spec := c.policyAt(on)
		if err := set(c, spec, on, text); err != nil {
			return err
		}
		return policy.Check(&queuepolicy.QueuePolicySpec{Quota: spec.Quota, Backfill: spec.Backfill})
	}
}

func setHeadroom(_ *Cluster, of *queuepolicy.QueuePolicySpec, _ queuepolicy.TargetRef, text string) error {
	if of.Quota.Headroom = nil; text == off {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return fmt.Errorf("%q: want PERCENT, or off", text)
	}
	of.Quota.Headroom = ptr.To(int32(n))
	return nil
}

func setShareOfNodes(_ *Cluster, of *queuepolicy.QueuePolicySpec, _ queuepolicy.TargetRef, text string) error {
	if text == off {
		of.Quota.ShareOfNodes = nil
		return nil
	}
	share, grace, graced := strings.Cut(text, "/")
	n, err := strconv.ParseInt(share, 10, 32)
	if err != nil {
		return fmt.Errorf("%q: want PERCENT or PERCENT/GRACE, as 25/10m, or off", text)
	}
	if of.Quota.ShareOfNodes = ptr.To(int32(n)); graced {
		of.Quota.Grace = ptr.To(queuepolicy.Duration(grace))
	}
	return nil
}

func setWindow(c *Cluster, of *queuepolicy.QueuePolicySpec, on queuepolicy.TargetRef, text string) error {
	if text == off {
		of.Quota.Windows = nil
		return nil
	}
	cards, when, _ := strings.Cut(text, "@")
	plus := strings.LastIndex(when, "+")
	amount, err := resource.ParseQuantity(cards)
	if err != nil || plus < 0 {
		return fmt.Errorf("%q: want CARDS@START+DURATION, as 16@0 20 * * *+10h, or off", text)
	}
	flavor, err := c.flavorOfCards(on)
	if err != nil {
		return err
	}
	of.Quota.Windows = append(of.Quota.Windows, queuepolicy.Window{
		Name: fmt.Sprintf("set-%d", len(of.Quota.Windows)+1), Start: when[:plus], Duration: queuepolicy.Duration(when[plus+1:]),
		Quotas: []queuepolicy.WindowQuota{{Flavor: flavor, Resource: c.Cards, NominalQuota: amount}},
	})
	return nil
}

func setRunTime(_ *Cluster, of *queuepolicy.QueuePolicySpec, _ queuepolicy.TargetRef, text string) error {
	if of.Backfill.RunTime = nil; text != off {
		of.Backfill.RunTime = ptr.To(queuepolicy.Duration(text))
	}
	return nil
}

func setQuantile(_ *Cluster, of *queuepolicy.QueuePolicySpec, _ queuepolicy.TargetRef, text string) error {
	if of.Backfill.Quantile = nil; text == off {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	of.Backfill.Quantile = ptr.To(int32(n))
	if err != nil {
		return fmt.Errorf("%q: want PERCENT, or off", text)
	}
	return nil
}
