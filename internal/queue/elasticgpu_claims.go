package queue

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	remote  map[string]bool                         // classes whose cards are used from other nodes
	flavors map[client.ObjectKey]map[string]string  // it was last counted on
	pods    map[client.ObjectKey]map[types.UID]bool // on nodes, that use it; true for one that is idle and has left its cards
}

func newGPUClaims() *gpuClaims {
	return &gpuClaims{
		objects: map[client.ObjectKey]*egpu.ElasticGPUClaim{}, users: map[client.ObjectKey][]admission.Key{},
		remote: map[string]bool{}, flavors: map[client.ObjectKey]map[string]string{}, pods: map[client.ObjectKey]map[types.UID]bool{},
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

// gpuClassChanged handles a class, and applies the workloads again whose claims are of it where that changes how they count.
func (s *Shell) gpuClassChanged(class *egpu.ElasticGPUClass, deleted bool) {
	remote := class.Parameters["sharing"] == egpu.SharingRemote && !deleted
	if s.gpuClaims.remote[class.Name] == remote {
		return
	}
	if s.gpuClaims.remote[class.Name] = remote; !remote {
		delete(s.gpuClaims.remote, class.Name)
	}
	var of []client.ObjectKey
	for key, claim := range s.gpuClaims.objects {
		if claim.ClassName() == class.Name {
			of = append(of, key)
		}
	}
	slices.SortFunc(of, func(a, b client.ObjectKey) int { return cmp.Compare(a.String(), b.String()) })
	for _, key := range of {
		s.reapplyUsers(key, admission.Key{})
	}
}

// podChanged notes which claims a pod on a node uses. While all pods of a claim are idle and have left its cards, nobody's
// quota is charged for it; when one returns, it counts again, also beyond the quota. One that was swapped out comes back on
// quota: its workload asks for it.
func (s *Shell) podChanged(pod *corev1.Pod, gone bool) {
	gone = gone || pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	for _, name := range workload.PodGPUClaims(pod) {
		key := client.ObjectKey{Namespace: pod.Namespace, Name: name}
		was := s.gpuClaims.away(key)
		s.gpuClaims.setPod(key, pod, gone)
		if s.gpuClaims.away(key) != was {
			s.reapplyUsers(key, admission.Key{})
		}
	}
}

func (c *gpuClaims) setPod(claim client.ObjectKey, pod *corev1.Pod, gone bool) {
	if c.pods[claim] == nil {
		c.pods[claim] = map[types.UID]bool{}
	}
	if c.pods[claim][pod.UID] = egpu.IsIdle(pod); gone {
		delete(c.pods[claim], pod.UID)
	}
	if len(c.pods[claim]) == 0 {
		delete(c.pods, claim)
	}
}

// away says that all pods that use a claim are idle, and have left its cards.
func (c *gpuClaims) away(claim client.ObjectKey) bool {
	for _, left := range c.pods[claim] {
		if !left {
			return false
		}
	}
	return len(c.pods[claim]) > 0
}

// isRemote says that the card of a claim is used from other nodes: as the ElasticGPU that it has, or as its class will make one.
func (c *gpuClaims) isRemote(claim *egpu.ElasticGPUClaim) bool {
	switch {
	case claim == nil:
		return false
	case claim.Status.Phase == egpu.ClaimBound:
		return claim.Status.Remote
	}
	return c.remote[claim.ClassName()]
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
		if t == nil || !s.usesQuota(t.object) {
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
		free := charged != admission.Key{} && charged != w.Key || s.gpuClaims.away(key)
		claim := s.gpuClaims.objects[key]
		return workload.GPUClaim{Object: claim, ChargedElsewhere: free, Flavors: s.gpuClaims.flavors[key], Remote: s.gpuClaims.isRemote(claim)}
	})
	if flavors := workload.GPUClaimFlavors(w); len(flavors) > 0 {
		for _, key := range gpuClaimKeys(wl) {
			s.gpuClaims.flavors[key] = flavors
		}
	}
}
