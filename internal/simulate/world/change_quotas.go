package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Quotas and limits are of cards in the first flavor that has any, or of what is named:
//
//	quota=64, quota.gpu=64              cards
//	quota.FLAVOR=64                     cards of a flavor
//	quota.FLAVOR.RESOURCE=256           another resource, as in quota.h100.cpu=256
var quotaSettings = map[string]func(*admission.Quota, int64){
	"quota":          func(q *admission.Quota, v int64) { q.Nominal = v },
	"borrowinglimit": func(q *admission.Quota, v int64) { q.BorrowingLimit = &v },
	"lendinglimit":   func(q *admission.Quota, v int64) { q.LendingLimit = &v },
}

// quotaSetting is the setter of a quota or limit by its words; false for what is none.
func quotaSetting(kind, setting string) (setter, bool) {
	name, of, _ := strings.Cut(setting, ".")
	change, known := quotaSettings[strings.ToLower(name)]
	if !known || kind != "queue" && kind != "cohort" {
		return nil, false
	}
	return func(c *Cluster, name, value string) (bool, error) {
		found := false
		if kind == "cohort" {
			c.describeCohorts()
		}
		change := func(groups []admission.ResourceGroup, name string) error {
			found = true
			return c.changeQuota(kind+" "+name, groups, of, value, change)
		}
		for i := range c.Queues {
			if q := &c.Queues[i]; kind == "queue" && (name == "*" || q.Name == name) {
				if err := change(q.Groups, q.Name); err != nil {
					return true, err
				}
			}
		}
		for i := range c.Cohorts {
			if co := &c.Cohorts[i]; kind == "cohort" && (name == "*" || co.Name == name) {
				co.Groups = c.withQuota(co.Groups, of)
				if err := change(co.Groups, co.Name); err != nil {
					return true, err
				}
			}
		}
		return found, nil
	}, true
}

// setBorrowWithinCohort: LowerPriority, and up to which priority behind it, or Never.
func setBorrowWithinCohort(_ *Cluster, q *admission.Queue, text string) error {
	which, most, bounded := strings.Cut(text, "/")
	var preempts bool
	if err := choose(&preempts, which, map[string]bool{string(kueue.BorrowWithinCohortPolicyLowerPriority): true, string(kueue.BorrowWithinCohortPolicyNever): false}); err != nil {
		return err
	}
	q.Preemption.BorrowWithinCohort, q.Preemption.BorrowMaxPriority = preempts, nil
	if !bounded {
		return nil
	}
	v, err := strconv.ParseInt(most, 10, 32)
	if err != nil || !preempts {
		return fmt.Errorf("%q: want LowerPriority, LowerPriority/PRIORITY or Never", text)
	}
	q.Preemption.BorrowMaxPriority = &v
	return nil
}

// withQuota is the quota of a Cohort that has none, in a flavor.
func (c *Cluster) withQuota(groups []admission.ResourceGroup, of string) []admission.ResourceGroup {
	at := slices.IndexFunc(c.Flavors, func(f admission.Flavor) bool { return of == "" || of == "gpu" || f.Name == of })
	if len(groups) > 0 || at < 0 {
		return groups
	}
	return []admission.ResourceGroup{{Resources: []string{c.Cards}, Flavors: []admission.FlavorQuotas{{
		Flavor: c.Flavors[at].Name, Quotas: map[string]admission.Quota{c.Cards: {}},
	}}}}
}

// changeQuota of a resource in a flavor; of cards in the first flavor that has any, where nothing is said.
func (c *Cluster) changeQuota(whose string, groups []admission.ResourceGroup, of, text string, change func(*admission.Quota, int64)) error {
	var names []string
	for _, g := range groups {
		for _, f := range g.Flavors {
			for _, name := range sortedKeys(f.Quotas) {
				quota := f.Quotas[name]
				cards := name == c.Cards
				if of == f.Flavor+"."+name || cards && (of == "" || of == "gpu" || of == f.Flavor || of == f.Flavor+".gpu") {
					v, err := amountOf(name, cards, text)
					if err != nil {
						return err
					}
					change(&quota, v)
					f.Quotas[name] = quota
					return nil
				}
				names = append(names, f.Flavor+"."+name)
			}
		}
	}
	if of == "" || of == "gpu" {
		return fmt.Errorf("%s has no quota of %s", whose, c.Cards)
	}
	return fmt.Errorf("%s has no quota %s; it has %s", whose, of, join(names, 20))
}

// amountOf a resource in the engine's unit.
func amountOf(name string, cards bool, text string) (int64, error) {
	if cards {
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < 0 {
			return 0, fmt.Errorf("%q is not a number from 0", text)
		}
		return v, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return 0, fmt.Errorf("%q is not an amount of %s", text, name)
	}
	return workload.Amount(corev1.ResourceName(name), q), nil
}
