package queue

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// claims knows the ElasticGPUClaims, and which workloads use them. Of several
// that use one, the first to hold quota pays for it; when it is over, the next.
type claims struct {
	objects map[client.ObjectKey]*egpu.ElasticGPUClaim
	users   map[client.ObjectKey][]admission.Key
	flavors map[client.ObjectKey]map[string]string // that it was counted on last
}

func newClaims() *claims {
	return &claims{
		objects: map[client.ObjectKey]*egpu.ElasticGPUClaim{}, users: map[client.ObjectKey][]admission.Key{},
		flavors: map[client.ObjectKey]map[string]string{},
	}
}

func claimKeys(wl *kueue.Workload) []client.ObjectKey {
	var keys []client.ObjectKey
	for _, name := range workload.Claims(wl) {
		keys = append(keys, client.ObjectKey{Namespace: wl.Namespace, Name: name})
	}
	return keys
}

// use notes whether a workload uses its claims.
func (c *claims) use(wl *kueue.Workload, uses bool) {
	key := workload.KeyOf(wl)
	for _, claim := range claimKeys(wl) {
		c.users[claim] = slices.DeleteFunc(c.users[claim], func(k admission.Key) bool { return k == key })
		if uses {
			c.users[claim] = append(c.users[claim], key)
		}
		if len(c.users[claim]) == 0 {
			delete(c.users, claim)
			delete(c.flavors, claim)
		}
	}
}

// sawClaim takes in a claim, and what that means for those who use it.
func (s *Shell) sawClaim(claim *egpu.ElasticGPUClaim, gone bool) {
	key := client.ObjectKeyFromObject(claim)
	if s.claims.objects[key] = claim; gone {
		delete(s.claims.objects, key)
	}
	s.tellUsers(key, admission.Key{})
}

// tellUsers tells the engine again of all workloads that use a claim, but one.
func (s *Shell) tellUsers(claim client.ObjectKey, but admission.Key) {
	for _, key := range s.claims.users[claim] {
		if t := s.workloads[key]; t != nil && key != but {
			s.tellAgain(t)
		}
	}
}

// payer is the workload that pays for a claim: of those that hold quota, the
// one that has held it longest.
func (s *Shell) payer(claim client.ObjectKey) admission.Key {
	var first *kueue.Workload
	for _, key := range s.claims.users[claim] {
		t := s.workloads[key]
		if t == nil || !workload.Holds(t.object) {
			continue
		}
		if first == nil || workload.HeldLonger(t.object, first) {
			first = t.object
		}
	}
	if first == nil {
		return admission.Key{}
	}
	return workload.KeyOf(first)
}

// countClaims adds to a workload what its claims ask for.
func (s *Shell) countClaims(w *admission.Workload, wl *kueue.Workload) {
	if len(workload.Claims(wl)) == 0 {
		return
	}
	workload.CountClaims(w, wl, s.options.Counting, func(name string) workload.Claim {
		key := client.ObjectKey{Namespace: wl.Namespace, Name: name}
		payer := s.payer(key)
		return workload.Claim{Object: s.claims.objects[key], Paid: payer != admission.Key{} && payer != w.Key, Flavors: s.claims.flavors[key]}
	})
	if flavors := workload.ClaimFlavors(w); len(flavors) > 0 {
		for _, key := range claimKeys(wl) {
			s.claims.flavors[key] = flavors
		}
	}
}
