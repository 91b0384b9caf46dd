package placer

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/elastic-ai/elastic/internal/admission"
)

func named(name string) admission.Key { return admission.Key{Namespace: "ns", Name: name} }

// fill n0 with the pods of a workload, although it may be reserved for another.
func fill(p *Placer, workload string) {
	for i := range 4 {
		taken := pod(workload, i, corev1.PodRunning)
		taken.Annotations["elasticgpu.io/container-main"] = fmt.Sprint(i)
		p.Saw(taken, false)
	}
}

// restoreAll does what the queue does before a decision.
func restoreAll(t *testing.T, p *Placer, all ...admission.PlaceRequest) {
	t.Helper()
	for _, key := range p.Outdated() {
		for _, r := range all {
			if r.Workload == key {
				p.Hold(key, p.Restore(r, p.Bound(), nil))
			}
		}
	}
}

// Pods may be bound where another workload's are to go. What was reserved there is reserved elsewhere.
func TestReservationThatOtherPodsTookIsMadeAgain(t *testing.T) {
	p := cluster(t, 1)
	crowded := asking("crowded", 4, 1)
	fits(t, p, crowded)
	p.Saw(node("n1"), false)
	fill(p, "others")
	restoreAll(t, p, crowded)
	refused(t, p, asking("next", 1, 1)) // all of n1 is reserved
}

// A pod that went and did not succeed comes again: its place is reserved.
func TestPlaceOfAPodThatWentIsReserved(t *testing.T) {
	p := cluster(t, 1)
	all := asking("a", 4, 1)
	fits(t, p, all)
	fill(p, "a")
	p.Saw(pod("a", 0, corev1.PodRunning), true)
	restoreAll(t, p, all)
	refused(t, p, asking("next", 1, 1))
	p.Saw(pod("a", 1, corev1.PodSucceeded), false)
	restoreAll(t, p, all)
	fits(t, p, asking("next", 1, 1))
}

// Pods of an admitted workload that fit nowhere are bound to what comes free: it is theirs before anybody else is
// admitted, or others are preempted.
func TestPodsThatWaitComeFirst(t *testing.T) {
	p := cluster(t, 1)
	crowded := asking("crowded", 3, 1)
	fits(t, p, crowded)
	p.Hold(named("victim"), nil)
	fill(p, "victim")
	restoreAll(t, p, crowded)
	mark := p.Checkpoint()
	p.Remove(named("victim"))
	refused(t, p, asking("preemptor", 2, 1))
	fits(t, p, asking("small", 1, 1))
	p.Rollback(mark)

	p.Remove(named("victim"))
	for i := range 4 {
		p.Saw(pod("victim", i, corev1.PodSucceeded), false)
	}
	restoreAll(t, p, crowded)
	refused(t, p, asking("preemptor", 2, 1))
	fits(t, p, asking("small", 1, 1))
}

// Once they are bound, nobody waits any more.
func TestPodsThatWaitedAreOnNodes(t *testing.T) {
	p := cluster(t, 1)
	crowded := asking("crowded", 1, 1)
	fits(t, p, crowded)
	p.Hold(named("victim"), nil)
	fill(p, "victim")
	restoreAll(t, p, crowded)
	for i := range 2 {
		p.Saw(pod("victim", i, corev1.PodSucceeded), false)
	}
	p.Saw(pod("crowded", 0, corev1.PodRunning), false)
	mark := p.Checkpoint()
	fits(t, p, asking("next", 1, 1))
	p.Rollback(mark)
	if len(p.waiting) > 0 {
		t.Errorf("they wait: %v", p.waiting)
	}
}
