//go:build !cgo

package agent

import (
	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/mig"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
)

func (*Node) ofRealCards(*discovery.NVML, *backend.NodeDriver) []backend.Backend { return nil }

// Divisions are none.
func Divisions(*discovery.NVML, string) func(uuid string) ([]mig.Partition, bool) { return nil }
