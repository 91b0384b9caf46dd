package visibility

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
)

// BudgetTeller is the queue's loop, as budgets need it.
type BudgetTeller interface {
	Budgets(ctx context.Context, localQueue admission.Key) ([]v1alpha1.Budget, []v1alpha1.Spending, error)
}

// Budgets serves how much is used of the budgets that a LocalQueue's workloads use. What others have used of them is no
// secret, as they lack it. What it has spent is its own alone.
func Budgets(b BudgetTeller) Resource {
	return Resource{
		Group: v1alpha1.Group, Version: v1alpha1.Version, Name: v1alpha1.BudgetReports, Kind: "BudgetReport", Namespaced: true, Verb: "get",
		Handle: func(ctx context.Context, q *Request) (any, error) {
			list, spending, err := b.Budgets(ctx, admission.Key{Namespace: q.Namespace, Name: q.Name})
			if err != nil {
				return nil, wrap(err, v1alpha1.BudgetReports, q.Name)
			}
			return &v1alpha1.BudgetReport{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.Group + "/" + v1alpha1.Version, Kind: "BudgetReport"},
				ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: q.Name},
				Budgets:    list, Spending: spending,
			}, nil
		},
	}
}
