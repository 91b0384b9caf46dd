package slots

import (
	"fmt"

	"github.com/elastic-ai/elastic/internal/agent/share"
)

// checkPath refuses a share of a card that is allocated on the other path, and one by a ResourceClaim that goes
// beyond the card. The schedulers see to both; this catches a path that was changed under running pods, and
// decisions that were made at the same time.
func (s *Slots) checkPath(what *share.Share) error {
	grants, err := s.Grants()
	if err != nil {
		return err
	}
	for _, card := range what.Cards {
		percent, memory := card.Percent, card.MemoryMB
		for i := range grants {
			g := &grants[i]
			if g.ID == what.ID {
				continue
			}
			for _, other := range g.Cards {
				if other.UUID != card.UUID {
					continue
				}
				if (g.Claim == nil) != (what.Claim == nil) {
					return fmt.Errorf("card %d is allocated to pod %s, which got it %s: a card has one allocation path at a time", card.Index, g.Pod, pathOf(&g.Share))
				}
				percent += other.Percent
				memory += other.MemoryMB
			}
		}
		if what.Claim != nil && card.Instance == nil && (percent > 100 || memory > card.Card.MemoryMB) {
			return fmt.Errorf("card %d would be given out beyond what it has: %g percent, %d MiB of %d", card.Index, percent, memory, card.Card.MemoryMB)
		}
	}
	return nil
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
