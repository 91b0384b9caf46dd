package backend

import (
	"context"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Backend makes shares real on a node, and takes them away.
//
// The agent may die between any two of these calls, and asks again for what it is not sure of: each
// may be called any number of times and leaves the same behind.
type Backend interface {
	Name() string
	// Prepare makes the share real for a container that is about to start, and says what it must see.
	// What an earlier container in its place left there is gone.
	Prepare(ctx context.Context, s *share.Share) (*specs.ContainerEdits, error)
	// Release takes a share away, whole or half made. That it is not there is no error.
	Release(ctx context.Context, id string) error
	// Held lists the shares that are there, so that those whose containers are long gone are found.
	Held(ctx context.Context) ([]string, error)
}

// Driver is what any container needs to see to use cards: device nodes and the driver's files.
type Driver interface {
	Edits(s *share.Share) (*specs.ContainerEdits, error)
}
