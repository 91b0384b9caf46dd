package workload

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/budget"
)

// What the nodes of a workload cost is said by the check that bought them, and by conditions: of the run that it has, where the check does not say it
// (any more), or where others make nodes that have a price; and of the runs that it had.

const (
	// boughtCondition tells what the nodes cost of a workload that is being evicted, as its checks have begun anew, or runs in another cluster.
	boughtCondition = "elasticai.io/NodesBought"
	// pricedCondition tells what the nodes cost of flavors whose nodes others make, by the prices of CloudOffers when it got its quota. Budgets
	// do not read it: they have the price of when the run has ended.
	pricedCondition = "elasticai.io/PriceAtAdmission"
	// earlierRunsCondition tells what the nodes of a workload have cost in runs that are over, as in "12.340000 US dollars".
	earlierRunsCondition = "elasticai.io/EarlierRunsCost"
	dollars              = " US dollars"
)

const (
	// mostPrice is what nodes of a workload cost an hour at most, in US dollars, as far as is believed.
	mostPrice = 1e6
	// mostCost is the same of all its runs.
	mostCost = 1e12
)

// Cost is what the nodes of a workload cost that were bought for it, or have a price, in US dollars.
type Cost struct {
	PerHour float64 // of those that it has
	Paid    float64 // in earlier runs, and for those that it has from their order to its admission
	// Since is when it was admitted to those that it has, and Until when it ended; zero: it has none, or goes on.
	Since, Until time.Time
}

// CostOf is what the nodes of a workload cost in all its runs; false: none were bought for it, and none have a price.
func CostOf(wl *kueue.Workload) (c Cost, known bool) {
	c.Paid, known = earlierRuns(wl)
	reserved, admitted := condition(wl, kueue.WorkloadQuotaReserved), condition(wl, kueue.WorkloadAdmitted)
	if !HasReservation(wl) || !IsAdmitted(wl) {
		return c, known
	}
	bought := boughtAmounts(wl)
	for _, a := range bought {
		price, since := float64(a.Units)/1e6, a.Since
		if since.Before(reserved.LastTransitionTime.Time) {
			since = reserved.LastTransitionTime.Time // no more than the run counts, whatever is said
		}
		c.PerHour += price
		c.Paid += price * max(0, admitted.LastTransitionTime.Sub(since).Hours())
	}
	for _, a := range noted(wl, pricedCondition) {
		if !slices.ContainsFunc(bought, func(b budget.Amount) bool { return b.Flavor == a.Flavor }) {
			c.PerHour += float64(a.Units) / 1e6
		}
	}
	if c.PerHour <= 0 {
		return c, known
	}
	c.Since = admitted.LastTransitionTime.Time
	if IsFinished(wl) {
		c.Until = condition(wl, kueue.WorkloadFinished).LastTransitionTime.Time
	}
	return c, true
}

// At is what they have cost until a time.
func (c Cost) At(now time.Time) float64 {
	if c.Since.IsZero() {
		return c.Paid
	}
	if !c.Until.IsZero() && now.After(c.Until) {
		now = c.Until
	}
	return c.Paid + c.PerHour*max(0, now.Sub(c.Since).Hours())
}

// earlierRuns is what is noted of runs that are over; what nobody can read is nothing.
func earlierRuns(wl *kueue.Workload) (cost float64, noted bool) {
	note := condition(wl, earlierRunsCondition)
	if note == nil || note.Status != metav1.ConditionTrue {
		return 0, false
	}
	cost, err := strconv.ParseFloat(strings.TrimSuffix(note.Message, dollars), 64)
	if err != nil || !(cost >= 0 && cost <= mostCost) { // so that NaN is none
		return 0, false
	}
	return cost, true
}

// noteRunCost adds what the nodes of a run have cost whose quota is taken away now to what earlier ones have.
func noteRunCost(wl *kueue.Workload, now time.Time) {
	if c, _ := CostOf(wl); !c.Since.IsZero() {
		set(wl, earlierRunsCondition, true, "QuotaReleased", strconv.FormatFloat(min(c.At(now), mostCost), 'f', 6, 64)+dollars, now)
	}
}

// boughtAmounts are what the nodes cost that were bought for a workload, as its check says, from when they were ordered. Until it is
// admitted it has none: what becomes of an attempt is not known.
func boughtAmounts(wl *kueue.Workload) []budget.Amount {
	admitted := condition(wl, kueue.WorkloadAdmitted)
	if admitted == nil || admitted.Status != metav1.ConditionTrue {
		return nil
	}
	list := purchases(wl.Status.AdmissionChecks, wl.Status.Admission, admitted.LastTransitionTime.Time)
	if len(list) == 0 {
		return noted(wl, boughtCondition)
	}
	return list
}

// purchases are what checks say of nodes that they bought, for pod sets that have their flavors by an admission.
func purchases(checks []kueue.AdmissionCheckState, flavors *kueue.Admission, admitted time.Time) (list []budget.Amount) {
	counted := map[string]bool{} // pod sets may share a purchase
	for _, check := range checks {
		for i := range check.PodSetUpdates {
			update := &check.PodSetUpdates[i]
			purchase := update.NodeSelector[cloudv1.PurchaseLabel]
			hourly, err := strconv.ParseFloat(update.Annotations[cloudv1.PriceAnnotation], 64)
			if purchase == "" || counted[purchase] || err != nil || !(hourly > 0 && hourly <= mostPrice) { // so that NaN is none
				continue
			}
			counted[purchase] = true
			list = append(list, budget.Amount{
				Flavor: flavorOfCards(flavors, update.Name), Resource: budget.Money, Units: int64(math.Round(hourly * 1e6)),
				Since: paidSince(update, admitted),
			})
		}
	}
	return list
}

// paidSince is when the nodes of a pod set were ordered; where the check does not say, or it cannot be, when the workload was admitted. No
// more than the run counts, whatever is said.
func paidSince(update *kueue.PodSetUpdate, admitted time.Time) time.Time {
	if at, err := time.Parse(time.RFC3339, update.Annotations[cloudv1.BoughtAtAnnotation]); err == nil && at.Before(admitted) {
		return at
	}
	return admitted
}

// noteBought notes what the nodes of a workload cost, whose checks are about to forget it.
func noteBought(wl *kueue.Workload, now time.Time) {
	if HasReservation(wl) {
		setNoted(wl, boughtCondition, boughtAmounts(wl), now)
	}
}

// NoteBoughtElsewhere notes, of a workload that another cluster runs, what the nodes cost that were bought there for its copy, or have a price there.
// Another cluster is trusted with no more than itself: of each pod at most so much is believed, in US dollars an hour.
func NoteBoughtElsewhere(wl, copied *kueue.Workload, mostOfPod float64, now time.Time) {
	if !HasReservation(wl) || !HasReservation(copied) || !(mostOfPod > 0) {
		return
	}
	pods := 0.0
	for i := range wl.Spec.PodSets {
		pods += float64(max(0, wl.Spec.PodSets[i].Count))
	}
	list, left := purchases(copied.Status.AdmissionChecks, wl.Status.Admission, now), int64(min(pods*mostOfPod, mostPrice)*1e6)
	if len(list) == 0 && len(wl.Spec.PodSets) > 0 {
		list = noted(copied, pricedCondition)
		for i := range list {
			list[i].Flavor, list[i].Since = flavorOfCards(wl.Status.Admission, wl.Spec.PodSets[0].Name), now
		}
	}
	for i := range list {
		list[i].Units = min(list[i].Units, left)
		left -= list[i].Units
	}
	list = slices.DeleteFunc(list, func(a budget.Amount) bool { return a.Units <= 0 })
	setNoted(wl, boughtCondition, list[:min(len(list), len(wl.Spec.PodSets))], now)
}

// NotePrices notes what nodes cost now that have a price and are not bought for a workload that gets quota.
func NotePrices(wl *kueue.Workload, priced func([]budget.Amount) []budget.Amount, now time.Time) {
	if wl.Status.Admission != nil {
		setNoted(wl, pricedCondition, priced(runAmounts(wl.Status.Admission)), now)
	}
}

// forgetNoted is for the write that takes the quota away.
func forgetNoted(wl *kueue.Workload, now time.Time) {
	for _, name := range []string{boughtCondition, pricedCondition} {
		if isTrue(wl, name) {
			set(wl, name, false, "QuotaReleased", "", now)
		}
	}
}

func setNoted(wl *kueue.Workload, name string, list []budget.Amount, now time.Time) {
	var report []reportedAmount
	for _, a := range list {
		a.Since = a.Since.UTC()
		report = append(report, reportedAmount(a))
	}
	if message, err := json.Marshal(report); err == nil && len(report) > 0 {
		set(wl, name, true, "Noted", string(message), now)
	}
}

// noted is what a condition notes of nodes; what nobody can read is nothing.
func noted(wl *kueue.Workload, name string) (list []budget.Amount) {
	note := condition(wl, name)
	var report []reportedAmount
	if note == nil || note.Status != metav1.ConditionTrue || json.Unmarshal([]byte(note.Message), &report) != nil {
		return nil
	}
	for _, a := range report {
		if a.Resource == budget.Money && a.Units > 0 && a.Units <= mostPrice*1e6 {
			list = append(list, budget.Amount(a))
		}
	}
	return list
}
