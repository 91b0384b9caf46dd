package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/event"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/dra"
	"github.com/elastic-ai/elastic/internal/gpu/request"
)

// AllocationPaths divides a node's cards between the two ways to get one: from the GPU scheduler, and from
// kube-scheduler by a ResourceClaim. A card has one allocation path at a time, and changes it when its last
// container has gone.
type AllocationPaths struct {
	// Cards that are given out by ResourceClaims where the node does not say: "all", indexes, or none.
	Cards string
	// Held says which cards containers have on which path.
	Held func() (claims, scheduler map[string]bool, err error)
	// Changes of that, each with the node.
	Changes <-chan event.GenericEvent
	// Offer cards to ResourceClaims, and no others.
	Offer func(ctx context.Context, cards []dra.Card) error
}

// Messages in GPU objects.
const (
	byClaim    = "it is given out by ResourceClaims"
	byClaimYet = "it is given out by ResourceClaims when the pods that the GPU scheduler gave it to have ended"
	closing    = "it goes back to the GPU scheduler when the pods that have it by ResourceClaims have ended"
)

// choose the path of each card. objects are its GPU objects, with the pods that the scheduler has allocated it to.
func (p *AllocationPaths) choose(ctx context.Context, node *corev1.Node, cards []discovery.Card, objects []egpu.GPU) error {
	wanted, err := p.wanted(node)
	if err != nil {
		return err
	}
	claims, scheduler, err := p.Held()
	if err != nil {
		return err
	}
	var offered []dra.Card
	for i := range cards {
		card := &cards[i]
		allocated := slices.ContainsFunc(objects, func(g egpu.GPU) bool { return g.Spec.UUID == card.UUID && len(g.Status.Allocated) > 0 })
		switch {
		case wanted(card.Index) && !claims[card.UUID] && (scheduler[card.UUID] || allocated):
			card.Elsewhere = byClaimYet
		case wanted(card.Index):
			card.Elsewhere = byClaim
			offered = append(offered, dra.Card{Card: *card})
		case claims[card.UUID]:
			card.Elsewhere = closing
			offered = append(offered, dra.Card{Card: *card, Closed: closing})
		}
	}
	return p.Offer(ctx, offered)
}

// wanted says which cards are to be given out by ResourceClaims.
func (p *AllocationPaths) wanted(node *corev1.Node) (func(index int) bool, error) {
	text, says := node.Annotations[egpu.DRACardsAnnotation]
	if !says {
		text = p.Cards
	}
	switch strings.TrimSpace(text) {
	case "all":
		return func(int) bool { return true }, nil
	case "none", "":
		return func(int) bool { return false }, nil
	}
	indexes, err := request.ParseCards(text)
	if err != nil {
		return nil, fmt.Errorf("cards for ResourceClaims on node %s (annotation %s, or dra.cards), write all, none, or indexes as 0,1: %w", node.Name, egpu.DRACardsAnnotation, err)
	}
	return func(index int) bool { return slices.Contains(indexes, index) }, nil
}
