package slots

import (
	"fmt"

	"github.com/elastic-ai/elastic/internal/agent/share"
)

// oneDoor refuses a share of a card that is given out through the other door, and one by a ResourceClaim
// that goes beyond the card. Who decides sees to both; a door that was changed under running pods, or two
// deciders that do not know of each other, end here.
func (s *Slots) oneDoor(what *share.Share) error {
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
			for _, held := range g.Cards {
				if held.UUID != card.UUID {
					continue
				}
				if (g.Claim == nil) != (what.Claim == nil) {
					return fmt.Errorf("card %d is held by pod %s, which got it %s: a card is given out in one way at a time", card.Index, g.Pod, door(&g.Share))
				}
				percent += held.Percent
				memory += held.MemoryMB
			}
		}
		if what.Claim != nil && card.Instance == nil && (percent > 100 || memory > card.Card.MemoryMB) {
			return fmt.Errorf("card %d would be given out beyond what it has: %g percent, %d MiB of %d", card.Index, percent, memory, card.Card.MemoryMB)
		}
	}
	return nil
}

func door(s *share.Share) string {
	if s.Claim != nil {
		return "by the ResourceClaim " + s.Claim.Name
	}
	return "from the scheduler"
}

// Doors says which cards, by UUID, containers have through which door: by ResourceClaims, or from the scheduler.
func (s *Slots) Doors() (claims, scheduler map[string]bool, err error) {
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
