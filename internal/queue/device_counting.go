package queue

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/devices"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// countDevices adds what a workload's pods get by ResourceClaims.
func (s *Shell) countDevices(w *admission.Workload, wl *kueue.Workload) {
	switch {
	case s.options.Devices != nil:
		s.options.Devices.Count(w, wl)
	case s.gates.rejectDevices && workload.UsesResourceClaims(wl) && w.Admission == nil:
		w.Refused = "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled"
	}
}

// uncountable says why a workload's devices cannot be counted, where it is pending for that; "" otherwise.
func (s *Shell) uncountable(wl *kueue.Workload, p admission.Pending) string {
	if p.Reason != admission.ReasonMisconfigured || !p.Blocked {
		return ""
	}
	w := workload.ForEngine(s.podResources.Apply(wl), s.options.Transformations)
	s.countDevices(&w, wl)
	return w.Refused
}

// quantity is an amount in the form people write the resource.
func (o *Options) quantity(name corev1.ResourceName, amount int64) resource.Quantity {
	q := workload.Quantity(name, amount)
	if o.Devices.InBytes(name) {
		q.Format = resource.BinarySI
	}
	return q
}

// formatUsage writes the usage of an admission in that form.
func (o *Options) formatUsage(given *kueue.Admission) {
	for i := range given.PodSetAssignments {
		usage := given.PodSetAssignments[i].ResourceUsage
		for name, q := range usage {
			usage[name] = o.quantity(name, workload.Amount(name, q))
		}
	}
}

// recountDevices applies the pending workloads again that use templates, classes or devices that
// changed.
func (s *Shell) recountDevices() {
	if s.options.Devices == nil {
		return
	}
	if affected := s.options.Devices.Changed(); affected != nil {
		s.reapplyPending(affected)
	}
}

// recountPods applies the pending workloads again whose pods other LimitRanges or RuntimeClasses apply to
// now. What a workload has reserved stays.
func (s *Shell) recountPods() {
	if concerned := s.podsChanged; len(concerned) > 0 {
		s.podsChanged = nil
		s.reapplyPending(func(wl *kueue.Workload) bool {
			return slices.ContainsFunc(concerned, func(concerns func(*kueue.Workload) bool) bool { return concerns(wl) })
		})
	}
}

// reapplyPending applies the affected workloads again that have no quota.
func (s *Shell) reapplyPending(affected func(*kueue.Workload) bool) {
	var keys []admission.Key
	for key, t := range s.workloads {
		if !workload.HasReservation(t.object) && !workload.IsFinished(t.object) && affected(t.object) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b admission.Key) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		s.reapply(s.workloads[key])
	}
}

// searchInBackground has devices searched for outside the loop.
func (s *Shell) searchInBackground(search *devices.Search) {
	if search.Costly() {
		s.options.Log.Info("the selectors of a ResourceClaimTemplate are costly: its devices are counted in the background", "template", search.For().String())
	}
	s.deviceSearches.submit(search)
}

// search takes one step of a search for devices, outside the loop, and puts the search at the end
// of the others, so that one tenant's costly selectors do not hold up another's.
func (s *Shell) search(ctx context.Context, search *devices.Search) {
	if search.Step(ctx) {
		s.inbox.Put(message{found: search})
	} else {
		s.deviceSearches.submit(search)
	}
}

// reapply applies a workload again because something it uses has changed. If it is being written,
// that happens when the write has ended.
func (s *Shell) reapply(t *tracked) {
	if t.writing != nil {
		t.stale = true
		return
	}
	s.tellEngine(t.object)
}

// devicesOf is what a workload's devices count as, in the API's types.
func (s *Shell) devicesOf(wl *kueue.Workload) []v1alpha1.Device {
	if s.options.Devices == nil {
		return nil
	}
	var out []v1alpha1.Device
	for _, c := range s.options.Devices.Explain(wl) {
		out = append(out, v1alpha1.Device{PodSet: c.PodSet, Resource: string(c.Resource), Amount: c.Amount.String(), From: c.From, Instead: string(c.Instead)})
	}
	return out
}
