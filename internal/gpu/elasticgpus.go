package gpu

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// To the engine an ElasticGPU is a pod that has cards and nothing else, as long as the object exists.

const deviceContainer = "elasticgpu"

func deviceKey(name string) string { return "elasticgpu/" + name }

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

// sawElasticGPU enters what it has of cards into the engine. One without cards of ours (a remote one, say)
// has none.
func (s *Shell) sawElasticGPU(e *egpu.ElasticGPU, gone bool) {
	key := deviceKey(e.Name)
	delete(s.unplaced, e.Name)
	node, indexes := s.whereIs(e)
	cards, err := request.List(e.Spec.Capacity, request.Share)
	if gone || node == "" || len(indexes) == 0 || err != nil || cards.Count == 0 {
		if !gone && len(gpuNames(e)) > 0 {
			s.unplaced[e.Name] = e // until its GPU objects are seen
		}
		if s.devices[key] != "" {
			if a, _, known := s.engine.Assignment(key); known {
				s.changed[a.Node] = true
			}
			delete(s.devices, key)
			s.apply(placement.PodGone{Key: key})
			s.requeue(true)
		}
		return
	}
	cards.Count = len(indexes)
	grant := placement.Grant{Container: deviceContainer}
	for _, index := range indexes {
		grant.Cards = append(grant.Cards, placement.CardGrant{Index: index})
	}
	s.holdDevice(key, node, cards, []placement.Grant{grant})
}

func (s *Shell) holdDevice(key, node string, cards placement.CardRequest, grants []placement.Grant) {
	cards.Models = nil // where it is has been decided
	is := fmt.Sprint(node, cards, grants)
	if s.devices[key] == is {
		return
	}
	if s.apply(placement.PodBound{Pod: devicePod(key, cards, ""), Node: node, Grants: grants}) {
		s.devices[key] = is
		s.changed[node] = true
	}
}

// whereIs an ElasticGPU: node and card indexes, as it says itself or as its GPU objects say.
func (s *Shell) whereIs(e *egpu.ElasticGPU) (node string, indexes []int) {
	node = pinnedTo(e.Spec.NodeAffinity)
	indexes, _ = request.ParseCards(e.Annotations[egpu.CardsAnnotation])
	if node != "" && len(indexes) > 0 {
		return node, indexes
	}
	indexes = nil
	for _, name := range gpuNames(e) {
		on, known := s.nodes.NodeOf(name)
		if !known || node != "" && node != on {
			return "", nil
		}
		node = on
		indexes = append(indexes, s.nodes.Get(on).GPUs[name].Spec.Index)
	}
	return node, indexes
}

func gpuNames(e *egpu.ElasticGPU) []string {
	switch {
	case e.Spec.PhysicalGPU != nil:
		return e.Spec.PhysicalGPU.GPUNames
	case e.Spec.GPUShare != nil && e.Spec.GPUShare.GPUName != "":
		return []string{e.Spec.GPUShare.GPUName}
	case e.Spec.QGPU != nil && e.Spec.QGPU.GPUName != "":
		return []string{e.Spec.QGPU.GPUName}
	}
	return nil
}

// pinnedTo is the one node that an affinity allows, if it is that narrow.
func pinnedTo(affinity *egpu.GPUNodeAffinity) string {
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	term := affinity.Required.NodeSelectorTerms[0]
	for _, r := range slices.Concat(term.MatchFields, term.MatchExpressions) {
		named := r.Key == "metadata.name" || r.Key == corev1.LabelHostname
		if named && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
			return r.Values[0]
		}
	}
	return ""
}

// deviceHold is how long cards are reserved for an ElasticGPU that is about to be written.
const deviceHold = 30 * time.Second

// Reserve cards for an ElasticGPU that is about to be made, anywhere.
func (s *Shell) Reserve(ctx context.Context, name string, cards placement.CardRequest, policy string) (a placement.Assignment, err error) {
	p := devicePod(deviceKey(name), cards, policy)
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
