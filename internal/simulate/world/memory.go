package world

import (
	"os"
	"runtime/debug"
)

// CollectSeldom has Go collect garbage only when the memory in use has grown to five times what it was, unless GOGC says how
// often. Most of what a world makes stays until its end, so that looking through it more often finds little.
func CollectSeldom() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
