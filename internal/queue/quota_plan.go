package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// ErrNotAsked is a question that cannot be answered.
var ErrNotAsked = errors.New("the plan")

const (
	planWithin   = 24 * time.Hour
	mostWithin   = 7 * 24 * time.Hour
	mostOfPlan   = 500 // workloads in each list of an answer
	mostOfQuotas = 1000
)

// PlanQuotas says how the starts of pending workloads would change with other quotas. Nothing is written.
func (s *Shell) PlanQuotas(ctx context.Context, spec *v1alpha1.QuotaPlanSpec) (v1alpha1.QuotaPlanStatus, error) {
	var status v1alpha1.QuotaPlanStatus
	within := cmp.Or(spec.Within.Duration, planWithin)
	if len(spec.Quotas) > mostOfQuotas || within < 0 || within > mostWithin {
		return status, fmt.Errorf("%w: at most %d quotas, and %s ahead", ErrNotAsked, mostOfQuotas, mostWithin)
	}
	var changes []admission.QuotaChange
	for _, q := range spec.Quotas {
		changes = append(changes, admission.QuotaChange{Queue: q.ClusterQueue, Flavor: q.Flavor, Resource: q.Resource, Nominal: workload.Amount(corev1.ResourceName(q.Resource), q.Nominal)})
	}
	s.options.Metrics.Inc("elastic_explanations_total", "quotas")
	var bad error
	err := s.ask(ctx, func() {
		now := s.now()
		starts, complete, err := s.engine.WhatIf(changes, now, now.Add(within))
		if err != nil {
			bad = fmt.Errorf("%w: %w", ErrNotAsked, err)
			return
		}
		status = s.quotaPlan(starts)
		status.Complete = complete
	})
	if err == nil {
		err = bad
	}
	return status, err
}

// quotaPlan is the answer in the API's types.
func (s *Shell) quotaPlan(starts []admission.StartForecast) v1alpha1.QuotaPlanStatus {
	status := v1alpha1.QuotaPlanStatus{Pending: len(starts)}
	slices.SortStableFunc(starts, func(a, b admission.StartForecast) int { return firstOf(&a).Compare(firstOf(&b)) })
	for i := range starts {
		start := &starts[i]
		if !start.Now.IsZero() {
			status.StartNow++
		}
		if !start.Then.IsZero() {
			status.WouldStart++
		}
		list := &status.Sooner
		switch {
		case start.Now.Equal(start.Then):
			continue
		case start.Then.IsZero() || !start.Now.IsZero() && start.Then.After(start.Now):
			list = &status.Later
		}
		if len(*list) < mostOfPlan {
			*list = append(*list, v1alpha1.PlannedStart{
				WorkloadRef: s.workloadRef(admission.Blocker{Workload: start.Workload, Queue: start.Queue}), StartsAt: timeOf(start.Now), WouldStart: timeOf(start.Then),
			})
		}
	}
	return status
}

// firstOf is when a workload starts with the other quotas, or as things are.
func firstOf(s *admission.StartForecast) time.Time {
	if s.Then.IsZero() {
		return s.Now
	}
	return s.Then
}

func timeOf(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return &metav1.Time{Time: at.UTC().Truncate(time.Second)}
}
