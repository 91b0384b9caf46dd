package mps

import (
	"strings"
	"testing"
)

// A daemon whose socket cannot be made ends without a word: the error has one.
func TestSocketPathThatIsTooLong(t *testing.T) {
	for _, c := range []struct {
		length int
		says   bool
	}{{maxSocketPath, false}, {maxSocketPath + 1, true}} {
		pipe := "/" + strings.Repeat("x", c.length-len("//"+longestSocket))
		if got := tooLong(pipe); (got != "") != c.says {
			t.Errorf("%d bytes: %q", c.length, got)
		}
	}
}
