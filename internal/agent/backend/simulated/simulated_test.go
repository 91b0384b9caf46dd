package simulated_test

import (
	"testing"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/simulated"
)

func TestConformance(t *testing.T) {
	dirs := map[string]string{}
	conformance.Run(t, conformance.Subject{
		Leaves: true,
		New: func(t *testing.T) backend.Backend {
			if dirs[t.Name()] == "" {
				dirs[t.Name()] = t.TempDir()
			}
			return &simulated.Backend{As: "simulated", Dir: dirs[t.Name()]}
		},
	})
}
