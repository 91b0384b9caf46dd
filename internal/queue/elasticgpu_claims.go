package queue

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// gpuClaims knows the ElasticGPUClaims and which workloads use them. Of several workloads that use
// one claim, the first with quota reserved is charged for it; when that ends, the next.
type gpuClaims struct {
	objects map[client.ObjectKey]*egpu.ElasticGPUClaim
	users   map[client.ObjectKey][]admission.Key
	flavors map[client.ObjectKey]map[string]string // it was last counted on
}

func newGPUClaims() *gpuClaims {
	return &gpuClaims{
		objects: map[client.ObjectKey]*egpu.ElasticGPUClaim{}, users: map[client.ObjectKey][]admission.Key{},
		flavors: map[client.ObjectKey]map[string]string{},
	}
}

func gpuClaimKeys(wl *kueue.Workload) []client.ObjectKey {
	var keys []client.ObjectKey
	for _, name := range workload.GPUClaims(wl) {
		keys = append(keys, client.ObjectKey{Namespace: wl.Namespace, Name: name})
	}
	return keys
}

// setUsed notes whether a workload uses its claims.
func (c *gpuClaims) setUsed(wl *kueue.Workload, uses bool) {
	key := workload.KeyOf(wl)
	for _, claim := range gpuClaimKeys(wl) {
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

// gpuClaimChanged handles a claim, and applies the workloads again that use it.
func (s *Shell) gpuClaimChanged(claim *egpu.ElasticGPUClaim, deleted bool) {
	key := client.ObjectKeyFromObject(claim)
	if s.gpuClaims.objects[key] = claim; deleted {
		delete(s.gpuClaims.objects, key)
	}
	s.reapplyUsers(key, admission.Key{})
}

// reapplyUsers applies all workloads again that use a claim, but one.
func (s *Shell) reapplyUsers(claim client.ObjectKey, but admission.Key) {
	for _, key := range s.gpuClaims.users[claim] {
		if t := s.workloads[key]; t != nil && key != but {
			s.reapply(t)
		}
	}
}

// chargedWorkload is the workload that is charged for a claim: of those with quota reserved the
// first one.
func (s *Shell) chargedWorkload(claim client.ObjectKey) admission.Key {
	var first *kueue.Workload
	for _, key := range s.gpuClaims.users[claim] {
		t := s.workloads[key]
		if t == nil || !workload.UsesQuota(t.object) {
			continue
		}
		if first == nil || workload.ReservedEarlier(t.object, first) {
			first = t.object
		}
	}
	if first == nil {
		return admission.Key{}
	}
	return workload.KeyOf(first)
}

// countGPUClaims adds what a workload's claims ask for.
func (s *Shell) countGPUClaims(w *admission.Workload, wl *kueue.Workload) {
	if len(workload.GPUClaims(wl)) == 0 {
		return
	}
	workload.CountGPUClaims(w, wl, s.options.Transformations, func(name string) workload.GPUClaim {
		key := client.ObjectKey{Namespace: wl.Namespace, Name: name}
		charged := s.chargedWorkload(key)
		return workload.GPUClaim{Object: s.gpuClaims.objects[key], ChargedElsewhere: charged != admission.Key{} && charged != w.Key, Flavors: s.gpuClaims.flavors[key]}
	})
	if flavors := workload.GPUClaimFlavors(w); len(flavors) > 0 {
		for _, key := range gpuClaimKeys(wl) {
			s.gpuClaims.flavors[key] = flavors
		}
	}
}
