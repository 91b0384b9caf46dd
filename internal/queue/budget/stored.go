package budget

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// Stored is an account as its object has it.
func (a *Account) Stored() v1alpha1.BudgetAccountStatus {
	var out v1alpha1.BudgetAccountStatus
	for _, s := range a.Sums {
		sum := v1alpha1.BudgetSum{
			Period: v1alpha1.BudgetPeriod(s.Period), TimeZone: s.Zone, From: metav1.NewTime(s.From), Until: metav1.NewTime(s.Until),
		}
		for _, u := range s.Used {
			sum.Used = append(sum.Used, v1alpha1.BudgetUsed{ClusterQueue: u.Queue, Flavor: u.Flavor, Resource: u.Resource, UnitSeconds: u.UnitSeconds})
		}
		for _, u := range s.Users {
			sum.Users = append(sum.Users, v1alpha1.BudgetUser(u))
		}
		out.Sums = append(out.Sums, sum)
	}
	for _, s := range a.Settled {
		run := v1alpha1.SettledRun{UID: s.UID, Start: metav1.NewTime(s.Start)}
		if s.Gone != nil {
			run.Gone = &metav1.Time{Time: *s.Gone}
		}
		out.Settled = append(out.Settled, run)
	}
	return out
}

// FromStored is the account that an object has. Less than nothing, which nobody has used, is nothing.
func FromStored(status *v1alpha1.BudgetAccountStatus) Account {
	var a Account
	for _, s := range status.Sums {
		sum := Sum{Window: Window{Period: Period(s.Period), Zone: s.TimeZone, From: s.From.Time, Until: s.Until.Time}}
		for _, u := range s.Used {
			sum.Used = addUsed(sum.Used, Used{Queue: u.ClusterQueue, Flavor: u.Flavor, Resource: u.Resource, UnitSeconds: u.UnitSeconds})
		}
		for _, u := range s.Users {
			sum.Users = addUser(sum.Users, UserUsed(u))
		}
		a.Sums = append(a.Sums, sum)
	}
	for _, s := range status.Settled {
		run := Settled{UID: s.UID, Start: s.Start.Time}
		if s.Gone != nil {
			run.Gone = &s.Gone.Time
		}
		a.Settled = append(a.Settled, run)
	}
	return a
}
