package simulated

import (
	"context"
	"fmt"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Backend of simulated shares.
type Backend struct {
	// As is the backend that it stands in for.
	As string
	// Dir is ours alone.
	Dir string
}

// Name of the one that it stands in for.
func (b *Backend) Name() string { return b.As }

// Prepare writes down what the share would be.
func (b *Backend) Prepare(_ context.Context, s *share.Share) (*specs.ContainerEdits, error) {
	var cards []string
	for _, c := range s.Cards {
		cards = append(cards, fmt.Sprintf("%s %g%% %dMiB", c.UUID, c.Percent, c.MemoryMB))
	}
	if err := backend.Record(b.Dir, s.ID, cards); err != nil {
		return nil, err
	}
	return &specs.ContainerEdits{Env: []string{"ELASTIC_GPU_SIMULATED=" + strings.Join(cards, ", ")}}, nil
}

// Release forgets it.
func (b *Backend) Release(_ context.Context, id string) error { return backend.Forget(b.Dir, id) }

// Held lists what is written down.
func (b *Backend) Held(context.Context) ([]string, error) { return backend.Recorded(b.Dir) }
