package simulated_test

import (
	"testing"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/simulated"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		Leaves: true,
		New: func(_ *testing.T, dir string) backend.Backend {
			return &simulated.Backend{As: "simulated", Dir: dir}
		},
	})
}
