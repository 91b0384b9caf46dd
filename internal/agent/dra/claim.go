package dra

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/elastic-ai/elastic/internal/agent/share"
)

// prepared is what one request of a claim was allocated, as a share and as devices.
type prepared struct {
	share   share.Share
	results []resourceapi.DeviceRequestAllocationResult
}

// shares of an allocated claim, one for each of its requests that this node serves. pods are those that it is
// reserved for.
func (c *catalog) shares(claim *resourceapi.ResourceClaim, node string, pods []corev1.Pod) ([]prepared, error) {
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s is not allocated", claim.Name)
	}
	var list []prepared
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != Driver || result.Pool != node {
			continue
		}
		if result.AdminAccess != nil && *result.AdminAccess {
			return nil, errors.New("access for administrators gives no share: ask for one")
		}
		at := slices.IndexFunc(list, func(p prepared) bool { return p.results[0].Request == result.Request })
		if at < 0 {
			at = len(list)
			list = append(list, prepared{share: c.share(claim, result.Request)})
		}
		target, known := c.targets[result.Device]
		if !known {
			return nil, fmt.Errorf("this node has no device %s", result.Device)
		}
		for name, q := range result.ConsumedCapacity {
			// The scheduler allocates no more than a device has, and never less than nothing.
			if q.Sign() < 0 || q.CmpInt64(mostOf(name, target)) > 0 {
				return nil, fmt.Errorf("the claim was allocated %s of %s on device %s, which has %d", q.String(), name, result.Device, mostOf(name, target))
			}
		}
		list[at].add(target, result)
	}
	for i := range list {
		s := &list[i].share
		if err := list[i].parameters(claim.Status.Allocation.Devices.Config); err != nil {
			return nil, err
		}
		if err := setContainer(claim, list[i].results[0].Request, pods, s); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// mostOf a capacity that a device has.
func mostOf(name resourceapi.QualifiedName, t target) int64 {
	switch name {
	case core:
		return 100
	case memory:
		return t.card.MemoryMB << 20
	}
	return math.MaxInt64 // none of ours
}

func (*catalog) share(claim *resourceapi.ResourceClaim, request string) share.Share {
	// It becomes part of a socket's path, which may have a hundred characters.
	sum := sha256.Sum256([]byte(string(claim.UID) + "/" + request))
	return share.Share{
		ID:    fmt.Sprintf("c%x", sum[:6]),
		Claim: &share.Claim{NamespacedName: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, UID: claim.UID},
	}
}

// add what was allocated of a device. A card may be allocated twice, and then is one with the sum of both.
func (p *prepared) add(t target, result resourceapi.DeviceRequestAllocationResult) {
	p.results = append(p.results, result)
	card := share.Card{Card: t.card, Percent: t.percent, MemoryMB: t.memoryMB, Instance: t.instance}
	if t.instance == nil {
		if q, ok := result.ConsumedCapacity[core]; ok {
			card.Percent = float64(q.Value())
		}
		if q, ok := result.ConsumedCapacity[memory]; ok {
			card.MemoryMB = q.Value() >> 20
		}
		for i := range p.share.Cards {
			if same := &p.share.Cards[i]; same.Instance == nil && same.UUID == card.UUID {
				same.Percent += card.Percent
				same.MemoryMB += card.MemoryMB
				return
			}
		}
	}
	p.share.Cards = append(p.share.Cards, card)
}

// parameters are those of the device class, which are an ElasticGPUClass's: how a share is held is not for its
// user to say.
func (p *prepared) parameters(configs []resourceapi.DeviceAllocationConfiguration) error {
	request := p.results[0].Request
	for _, config := range configs {
		if config.Opaque == nil || config.Opaque.Driver != Driver {
			continue
		}
		if len(config.Requests) > 0 && !slices.Contains(config.Requests, request) && !slices.Contains(config.Requests, resourceclaim.BaseRequestRef(request)) {
			continue
		}
		if config.Source != resourceapi.AllocationConfigSourceClass {
			return fmt.Errorf("request %s has parameters for %s in the claim: write them in the device class", request, Driver)
		}
		more := map[string]string{}
		if err := json.Unmarshal(config.Opaque.Parameters.Raw, &more); err != nil {
			return fmt.Errorf("the parameters of the device class of request %s: %w", request, err)
		}
		if p.share.Parameters == nil {
			p.share.Parameters = map[string]string{}
		}
		maps.Copy(p.share.Parameters, more)
	}
	divided := slices.ContainsFunc(p.share.Cards, func(c share.Card) bool { return c.Instance != nil })
	if divided {
		if slices.ContainsFunc(p.share.Cards, func(c share.Card) bool { return c.Instance == nil }) {
			return fmt.Errorf("request %s was allocated MIG partitions and other parts of cards: ask for them apart", request)
		}
		p.share.Parameters = map[string]string{"backend": "mig"}
	}
	return nil
}

// setContainer of a share: the pod that the claim is reserved for, and in it the container that uses the request.
// The library counts by the processes of one container; another with the same share would not be seen.
func setContainer(claim *resourceapi.ResourceClaim, request string, pods []corev1.Pod, s *share.Share) error {
	var users []string
	for i := range pods {
		pod := &pods[i]
		if s.Pod.Name == "" {
			s.Pod, s.UID = types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID
		}
		for _, container := range containers(pod, claim, resourceclaim.BaseRequestRef(request)) {
			if len(users) == 0 {
				s.Pod, s.UID, s.Container = types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID, container
			}
			users = append(users, pod.Name+"/"+container)
		}
	}
	counted := !s.Whole() && (s.Parameters["backend"] == "" || s.Parameters["backend"] == "gpushare")
	if counted && len(users) > 1 {
		return fmt.Errorf("claim %s is used by %s: a share of a card is one container's, give each a claim of its own", claim.Name, strings.Join(users, ", "))
	}
	return nil
}

// containers of a pod that use a request of a claim.
func containers(pod *corev1.Pod, claim *resourceapi.ResourceClaim, request string) []string {
	var users []string
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		name, _, err := resourceclaim.Name(pod, entry)
		if err != nil || name == nil || *name != claim.Name {
			continue
		}
		for _, group := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for _, container := range group {
				for _, use := range container.Resources.Claims {
					if use.Name == entry.Name && (use.Request == "" || use.Request == request) {
						users = append(users, container.Name)
					}
				}
			}
		}
	}
	return users
}
