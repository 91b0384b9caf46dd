package mps

import (
	"context"
	"fmt"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Backend of shares by MPS alone.
type Backend struct {
	Driver  backend.Driver
	Daemons *Daemons
}

// Name by which classes choose it.
func (*Backend) Name() string { return "mps" }

// Prepare has a daemon run for the card, and says how the container reaches it and with what.
func (b *Backend) Prepare(ctx context.Context, s *share.Share) (*specs.ContainerEdits, error) {
	if len(s.Cards) != 1 {
		return nil, fmt.Errorf("container %s of pod %s has %d cards: MPS shares one", s.Container, s.Pod, len(s.Cards))
	}
	card := s.Cards[0]
	mounts, err := b.Daemons.Attach(ctx, s.ID, card.UUID)
	if err != nil {
		return nil, err
	}
	edits, err := b.Driver.Edits(s)
	if err != nil {
		return nil, err
	}
	edits.Env = append(edits.Env, "CUDA_MPS_PIPE_DIRECTORY="+pipeDir)
	if card.Percent < 100 {
		edits.Env = append(edits.Env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%g", card.Percent))
	}
	if card.MemoryMB < card.Card.MemoryMB {
		// To the daemon and its clients there is one card, and it is the first.
		edits.Env = append(edits.Env, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", card.MemoryMB))
	}
	edits.Mounts = append(edits.Mounts, mounts...)
	return edits, nil
}

// Release forgets the share, and ends the daemon of a card that has no other.
func (b *Backend) Release(ctx context.Context, id string) error { return b.Daemons.Detach(ctx, id) }

// Held lists the shares that are written down.
func (b *Backend) Held(context.Context) ([]string, error) { return b.Daemons.Attached() }
