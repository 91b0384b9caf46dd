package queues

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
)

// Queue is a ClusterQueue as the tables show it.
type Queue struct {
	Name     string `json:"name"`
	Cohort   string `json:"cohort,omitempty"`
	Strategy string `json:"strategy"`
	// Status is Active, Stopped or Inactive; Why is the reason of the last.
	Status      string   `json:"status"`
	Why         string   `json:"why,omitempty"`
	Pending     int32    `json:"pending"`
	Admitted    int32    `json:"admitted"`
	Share       int64    `json:"share"`
	LocalQueues []string `json:"localQueues"` // as NAMESPACE/NAME
	Quotas      []Quota  `json:"quotas"`
}

// Quota of one resource in one flavor. Amounts are as people write them.
type Quota struct {
	Flavor   string `json:"flavor"`
	Resource string `json:"resource"`
	Nominal  string `json:"nominal"`
	Used     string `json:"used"`
	Borrowed string `json:"borrowed"`
	CanLend  string `json:"lendingLimit,omitempty"`
	CanTake  string `json:"borrowingLimit,omitempty"`
}

func read(ctx context.Context, c *cluster.Client) ([]Queue, error) {
	list, localQueues := &kueue.ClusterQueueList{}, &kueue.LocalQueueList{}
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("reading the queues: %w", err)
	}
	if err := c.List(ctx, localQueues); err != nil {
		return nil, fmt.Errorf("reading the local queues: %w", err)
	}
	out := []Queue{}
	for i := range list.Items {
		out = append(out, Describe(&list.Items[i], localQueues.Items))
	}
	slices.SortFunc(out, func(a, b Queue) int {
		return cmp.Or(strings.Compare(a.Cohort, b.Cohort), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}

// Describe a ClusterQueue with the LocalQueues that lead to it.
func Describe(cq *kueue.ClusterQueue, localQueues []kueue.LocalQueue) Queue {
	q := Queue{
		Name: cq.Name, Cohort: string(cq.Spec.CohortName), Strategy: string(cq.Spec.QueueingStrategy),
		Status: "Active", Pending: cq.Status.PendingWorkloads, Admitted: cq.Status.AdmittedWorkloads, LocalQueues: []string{}, Quotas: []Quota{},
	}
	if cq.Status.FairSharing != nil {
		q.Share = cq.Status.FairSharing.WeightedShare
	}
	active := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive)
	switch {
	case ptr.Deref(cq.Spec.StopPolicy, kueue.None) != kueue.None:
		q.Status, q.Why = "Stopped", string(*cq.Spec.StopPolicy)
	case active == nil:
		q.Status, q.Why = "Inactive", "elastic-queue has not looked at it"
	case active.Status != "True":
		q.Status, q.Why = "Inactive", active.Message
	}
	for i := range localQueues {
		if string(localQueues[i].Spec.ClusterQueue) == cq.Name {
			q.LocalQueues = append(q.LocalQueues, localQueues[i].Namespace+"/"+localQueues[i].Name)
		}
	}
	slices.Sort(q.LocalQueues)
	for _, group := range cq.Spec.ResourceGroups {
		for _, flavor := range group.Flavors {
			for _, r := range flavor.Resources {
				used, borrowed := Usage(cq, flavor.Name, r.Name)
				quota := Quota{Flavor: string(flavor.Name), Resource: string(r.Name), Nominal: r.NominalQuota.String(), Used: used.String(), Borrowed: borrowed.String()}
				if r.BorrowingLimit != nil {
					quota.CanTake = r.BorrowingLimit.String()
				}
				if r.LendingLimit != nil {
					quota.CanLend = r.LendingLimit.String()
				}
				q.Quotas = append(q.Quotas, quota)
			}
		}
	}
	return q
}

// Usage of a resource in a flavor, by what holds quota.
func Usage(cq *kueue.ClusterQueue, flavor kueue.ResourceFlavorReference, name corev1.ResourceName) (used, borrowed resource.Quantity) {
	for _, f := range cq.Status.FlavorsReservation {
		for _, r := range f.Resources {
			if f.Name == flavor && r.Name == name {
				return r.Total, r.Borrowed
			}
		}
	}
	return used, borrowed
}

// inUse is a queue's usage in one cell: the scarce resources first.
func (q *Queue) inUse() string {
	type sum struct{ used, nominal resource.Quantity }
	sums := map[string]*sum{}
	var names []string
	for _, quota := range q.Quotas {
		s := sums[quota.Resource]
		if s == nil {
			s = &sum{}
			sums[quota.Resource] = s
			names = append(names, quota.Resource)
		}
		s.used.Add(resource.MustParse(quota.Used))
		s.nominal.Add(resource.MustParse(quota.Nominal))
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %s/%s", name, sums[name].used.String(), sums[name].nominal.String()))
	}
	return strings.Join(parts, ", ")
}

// rank puts cards before what every node has.
func rank(resource string) int {
	if strings.Contains(resource, "/") {
		return 0
	}
	return 1
}
