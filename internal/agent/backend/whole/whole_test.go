package whole_test

import (
	"testing"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/whole"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		New: func(_ *testing.T, dir string) backend.Backend {
			return &whole.Backend{Driver: &backend.NodeDriver{Root: dir}}
		},
		Whole: true,
	})
}

func TestPartOfACardIsRefused(t *testing.T) {
	b := &whole.Backend{Driver: &backend.NodeDriver{Root: t.TempDir()}}
	if _, err := b.Prepare(t.Context(), conformance.Subject{}.Share("1", 0)); err == nil {
		t.Fatal("a share was given a whole card")
	}
}
