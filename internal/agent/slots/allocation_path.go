package slots

import (
	"fmt"
	"slices"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// check refuses a share of a card that is allocated on the other path or shared in the other way, and one that goes
// beyond what the other slots leave of the card. The schedulers see to both; this catches a path that was changed under running pods, decisions
// that were made at the same time, and a record that is wrong.
func (s *Slots) check(what *share.Share, by string) error {
	grants, err := s.Grants()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(grants, func(g Grant) bool { return again(&g.Share, what) }) {
		return nil // a container that starts again has what it had, whatever others were given since
	}
	for i := range what.Cards {
		if err := checkCard(&Grant{by, *what}, &what.Cards[i], grants); err != nil {
			return err
		}
	}
	return nil
}

// again says that the slot's share is for the same container, on the same cards.
func again(had, what *share.Share) bool {
	return had.ID == what.ID && had.UID == what.UID && had.UID != "" && had.Container == what.Container && (had.Claim == nil) == (what.Claim == nil) &&
		slices.EqualFunc(had.Cards, what.Cards, func(a, b share.Card) bool { return a.UUID == b.UUID && a.Reserved == b.Reserved })
}

func checkCard(coming *Grant, card *share.Card, grants []Grant) error {
	what := &coming.Share
	used, devices := reserved(what, card), map[string]bool{}
	for i := range grants {
		g := &grants[i]
		if g.ID == what.ID {
			continue
		}
		for j := range g.Cards {
			if g.Cards[j].UUID != card.UUID {
				continue
			}
			if (g.Claim == nil) != (what.Claim == nil) {
				return fmt.Errorf("card %d is allocated to pod %s, which got it %s: a card has one allocation path at a time", card.Index, g.Pod, pathOf(&g.Share))
			}
			if !counts(&g.Share, what, card, devices) {
				continue
			}
			if sharing(g) != sharing(coming) {
				return fmt.Errorf("card %d is shared %s, by pod %s, and not %s: a card is shared in one way at a time", card.Index, sharing(g), g.Pod, sharing(coming))
			}
			other := reserved(&g.Share, &g.Cards[j])
			used.Percent += other.Percent
			used.MemoryMB += other.MemoryMB
		}
	}
	if card.Instance == nil && (used.Percent > 100 || used.MemoryMB > card.Card.MemoryMB) {
		return fmt.Errorf("card %d would be given out beyond what it has: %g percent, %d MiB of %d", card.Index, used.Percent, used.MemoryMB, card.Card.MemoryMB)
	}
	return nil
}

// sharing is how a container has its part of a card. Programs under MPS run at once, beside which others have no turns,
// and each backend has a daemon of its own.
func sharing(g *Grant) string {
	switch {
	case g.Backend == "mps":
		return "by MPS alone"
	case g.Parameters["sharing"] == egpu.SharingSpace:
		return "in space"
	}
	return "in time"
}

// reserved of a card. A ResourceClaim reserves what it limits.
func reserved(s *share.Share, c *share.Card) share.Reserved {
	if s.Claim != nil {
		return share.Reserved{Percent: c.Percent, MemoryMB: c.MemoryMB}
	}
	return c.Reserved
}

// counts says whether what another slot has of a card is taken. A pod that the scheduler records on the card no more
// is swapped out or about to end; containers of one ElasticGPU share what it has.
func counts(other, what *share.Share, card *share.Card, devices map[string]bool) bool {
	switch {
	case other.Claim != nil:
		return true
	case other.Device == "":
		return card.Recorded[string(other.UID)]
	case other.Device == what.Device || devices[other.Device]:
		return false
	}
	devices[other.Device] = true
	return card.Recorded[other.Device]
}

func pathOf(s *share.Share) string {
	if s.Claim != nil {
		return "by the ResourceClaim " + s.Claim.Name
	}
	return "from the scheduler"
}

// AllocationPaths says which cards, by UUID, containers have on which path: by ResourceClaims, or from the scheduler.
func (s *Slots) AllocationPaths() (claims, scheduler map[string]bool, err error) {
	grants, err := s.Grants()
	claims, scheduler = map[string]bool{}, map[string]bool{}
	for i := range grants {
		for _, c := range grants[i].Cards {
			if grants[i].Claim != nil {
				claims[c.UUID] = true
			} else {
				scheduler[c.UUID] = true
			}
		}
	}
	return claims, scheduler, err
}
