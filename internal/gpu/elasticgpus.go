package gpu

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// To the engine an ElasticGPU is a pod that has cards and nothing else, as long as the object exists.

const deviceContainer = "elasticgpu"

// deviceKey is no pod's: no namespace can be called so.
func deviceKey(name string) string { return egpu.DeviceNamespace + "/" + name }

// devicePod tolerates the taints of GPU nodes; whether a pod may go there is for the pod's own tolerations.
func devicePod(key string, cards placement.CardRequest, policy string) placement.Pod {
	return placement.Pod{
		Key: key, Policy: policy, Pinned: true,
		Tolerations: []placement.Toleration{
			{Key: string(egpu.ResourceWhole), Operator: "Exists"}, {Key: "elasticgpu.io/gpu", Operator: "Exists"},
		},
		Containers: []placement.Container{{Name: deviceContainer, Cards: cards}},
	}
}

// sawElasticGPU enters what it has of cards into the engine. One without cards of ours (a remote one of somebody else's
// server, say) has none.
func (s *Shell) sawElasticGPU(e *egpu.ElasticGPU, gone bool) {
	key := deviceKey(e.Name)
	delete(s.unplaced, e.Name)
	node, indexes := s.whereIs(e)
	cards, err := request.List(e.Spec.Capacity, request.Share)
	if gone || node == "" || len(indexes) == 0 || err != nil || cards.Count == 0 {
		if !gone && len(request.GPUNames(e)) > 0 {
			s.unplaced[e.Name] = e // until its GPU objects are seen
		}
		s.freeDevice(key)
		s.setDevice(e, true)
		return
	}
	if s.away(s.setDevice(e, false)) {
		s.freeDevice(key)
		return
	}
	cards.Count = len(indexes)
	cards.Space = e.Annotations[egpu.SharingAnnotation] == egpu.SharingSpace && !cards.Exclusive
	grant := placement.Grant{Container: deviceContainer}
	for _, index := range indexes {
		grant.Cards = append(grant.Cards, placement.CardGrant{Index: index})
	}
	s.holdDevice(key, node, cards, []placement.Grant{grant})
}

// freeDevice takes an ElasticGPU off its cards.
func (s *Shell) freeDevice(key string) {
	if s.devices[key] == "" {
		return
	}
	if a, _, known := s.engine.Assignment(key); known {
		s.touch(a.Node)
	}
	delete(s.devices, key)
	s.apply(placement.PodGone{Key: key})
	s.requeue(true)
}

// claimUse is who uses a claim, and what the claim has.
type claimUse struct {
	device *egpu.ElasticGPU   // nil while it is not known
	pods   map[types.UID]bool // on nodes; true for one that has left its cards
}

// away says that all pods that use the claim have left their cards: nobody needs what it has there. Of a card of another node
// its server must have left it, too: what is there, the agents of the pods' nodes have no say in.
func (s *Shell) away(u *claimUse) bool {
	if u == nil || len(u.pods) == 0 || u.device != nil && request.IsServed(u.device) && !s.serversOut[u.device.Name] {
		return false
	}
	for _, left := range u.pods {
		if !left {
			return false
		}
	}
	return true
}

// usersOf a claim; it is made where it is not known.
func (s *Shell) usersOf(claim string) *claimUse {
	if s.claimed[claim] == nil {
		s.claimed[claim] = &claimUse{pods: map[types.UID]bool{}}
	}
	return s.claimed[claim]
}

func (s *Shell) forgetUnused(claim string) {
	if u := s.claimed[claim]; u != nil && u.device == nil && len(u.pods) == 0 {
		delete(s.claimed, claim)
	}
}

// setDevice notes which ElasticGPU a claim has, by what that one says.
func (s *Shell) setDevice(e *egpu.ElasticGPU, gone bool) *claimUse {
	ref := e.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	claim := ref.Namespace + "/" + ref.Name
	u := s.usersOf(claim)
	switch {
	case !gone:
		u.device = e
	case u.device != nil && u.device.Name == e.Name:
		u.device = nil
	}
	s.forgetUnused(claim)
	return u
}

// sawUses notes which claims a pod on a node uses, and whether it has left their cards: an ElasticGPU whose pods all have
// is not allocated until one of them is to return.
func (s *Shell) sawUses(pod *corev1.Pod, gone bool) {
	for _, use := range request.Uses(pod) {
		claim := pod.Namespace + "/" + use.Claim
		s.changeUse(claim, func(u *claimUse) {
			if u.pods[pod.UID] = egpu.HasLeftCards(pod); gone || pod.Spec.NodeName == "" {
				delete(u.pods, pod.UID)
			}
		})
	}
}

// sawServer notes whether a pod that serves an ElasticGPU to other nodes has left its card.
func (s *Shell) sawServer(pod *corev1.Pod, gone bool) {
	name := pod.Annotations[egpu.ServesAnnotation]
	if name == "" || pod.Namespace != s.options.ServerNamespace || pod.Name != request.ServerName(name) {
		return
	}
	out := !gone && egpu.HasLeftCards(pod)
	if s.serversOut[name] == out {
		return
	}
	if s.serversOut[name] = out; !out {
		delete(s.serversOut, name)
	}
	for _, u := range s.claimed {
		if u.device != nil && u.device.Name == name {
			s.sawElasticGPU(u.device, false)
			return
		}
	}
}

// lostUses of a pod that went unseen.
func (s *Shell) lostUses(uid types.UID) {
	for _, claim := range slices.Sorted(maps.Keys(s.claimed)) {
		s.changeUse(claim, func(u *claimUse) { delete(u.pods, uid) })
	}
}

// changeUse of a claim, and of its cards if that makes a difference.
func (s *Shell) changeUse(claim string, change func(*claimUse)) {
	u := s.usersOf(claim)
	was := s.away(u)
	if change(u); u.device != nil && s.away(u) != was {
		s.sawElasticGPU(u.device, false)
	}
	s.forgetUnused(claim)
}

func (s *Shell) holdDevice(key, node string, cards placement.CardRequest, grants []placement.Grant) {
	cards.Models = nil // where it is has been decided
	is := fmt.Sprint(node, cards, grants)
	if s.devices[key] == is {
		return
	}
	if s.apply(placement.PodBound{Pod: devicePod(key, cards, ""), Node: node, Grants: grants}) {
		s.devices[key] = is
		s.touch(node)
	}
}

// whereIs an ElasticGPU: node and card indexes, as it says itself or as its GPU objects say.
func (s *Shell) whereIs(e *egpu.ElasticGPU) (node string, indexes []int) {
	node = request.NodeOf(e)
	indexes, _ = request.ParseCards(e.Annotations[egpu.CardsAnnotation])
	if node != "" && len(indexes) > 0 {
		return node, indexes
	}
	indexes = nil
	for _, name := range request.GPUNames(e) {
		on, known := s.nodes.NodeOf(name)
		if !known || node != "" && node != on {
			return "", nil
		}
		node = on
		indexes = append(indexes, s.nodes.Get(on).GPUs[name].Spec.Index)
	}
	return node, indexes
}

// deviceHold is how long cards are reserved for an ElasticGPU that is about to be written.
const deviceHold = 30 * time.Second

// Reserve cards for an ElasticGPU that is about to be made, anywhere; for a remote one where they can be reached.
func (s *Shell) Reserve(ctx context.Context, name string, cards placement.CardRequest, policy string, remote bool) (a placement.Assignment, err error) {
	p := devicePod(deviceKey(name), cards, policy)
	if remote {
		p.Selector = connected
	}
	var refused error
	err = s.do(ctx, func() {
		var node string
		if node, refused = s.engine.Best(&p); refused == nil {
			a, refused = s.engine.Assign(&p, node, s.options.Now().Add(deviceHold))
		}
	})
	if err == nil {
		err = refused
	}
	return a, err
}

// Unreserve ends what Reserve reserved.
func (s *Shell) Unreserve(ctx context.Context, name string) {
	_ = s.do(ctx, func() { s.engine.Release(deviceKey(name)) })
}
