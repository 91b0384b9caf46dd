package local

import (
	"bytes"
	"strings"
	"testing"
)

func TestCardsAreUsedWhenThePersonSaysSo(t *testing.T) {
	for typed, want := range map[string]bool{"y\n": true, "Yes\n": true, "yes": true, "\n": false, "": false, "n\n": false, "yesterday\n": false} {
		var out bytes.Buffer
		got, err := askYes(strings.NewReader(typed), &out, []Card{{Model: "H200-141G", Memory: 143771}})
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", typed, got, err)
		}
		if !strings.Contains(out.String(), "H200-141G (143771 MiB)") {
			t.Errorf("it asks %q", out.String())
		}
	}
}
