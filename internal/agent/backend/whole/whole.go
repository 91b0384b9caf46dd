package whole

import (
	"context"
	"fmt"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Backend of whole cards. It leaves nothing on the node.
type Backend struct{ Driver backend.Driver }

// Name by which classes choose it.
func (*Backend) Name() string { return "whole" }

// Prepare says which devices the container sees.
func (b *Backend) Prepare(_ context.Context, s *share.Share) (*specs.ContainerEdits, error) {
	if !s.Whole() {
		return nil, fmt.Errorf("container %s of pod %s has a part of a card, which this backend cannot hold it to", s.Container, s.Pod)
	}
	return b.Driver.Edits(s)
}

// Release has nothing to take away.
func (*Backend) Release(context.Context, string) error { return nil }

// Held is empty.
func (*Backend) Held(context.Context) ([]string, error) { return nil, nil }
