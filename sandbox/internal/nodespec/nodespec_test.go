package nodespec

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	nodes, err := Parse("2x8:H100-80G, 1x4:a100-40g,1x2:H100-80G,3x0,1x1:FOO-32G")
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name   string
		cards  int
		model  string
		memory int64
	}{
		{"h100-80g-0", 8, "H100-80G", 81559}, {"h100-80g-1", 8, "H100-80G", 81559},
		{"a100-40g-0", 4, "A100-40G", 40960},
		{"h100-80g-2", 2, "H100-80G", 81559}, // a pool listed twice is counted on
		{"cpu-0", 0, "", 0}, {"cpu-1", 0, "", 0}, {"cpu-2", 0, "", 0},
		{"foo-32g-0", 1, "FOO-32G", 32768},
	}
	if len(nodes) != len(want) {
		t.Fatalf("got %d nodes, want %d: %v", len(nodes), len(want), nodes)
	}
	for i, w := range want {
		n := nodes[i]
		if n.Name != w.name || n.Cards != w.cards || n.Model.Name != w.model || n.Model.MemoryMB != w.memory {
			t.Errorf("node %d is %+v, want %+v", i, n, w)
		}
	}
}

func TestParseEmpty(t *testing.T) {
	if nodes, err := Parse(" "); err != nil || len(nodes) != 0 {
		t.Errorf("got %v, %v", nodes, err)
	}
}

func TestParseNamesTheBadPart(t *testing.T) {
	for text, reason := range map[string]string{
		"4x8:H100-80G,x":            "count",
		"4":                         "no x",
		"4x8":                       "model of the cards is missing",
		"4x0:H100-80G":              "have no model",
		"ax8:H100-80G":              `count "a" is not a number`,
		"4x-1:H100-80G":             `cards "-1" is not a number`,
		"4x17:H100-80G":             "above 16",
		"1x1:H100":                  "unknown card model",
		"1x1:FOO-0G":                "no memory",
		"1x1:FOO/BAR-32G":           "unknown card model",
		"50000x0,1x0":               "more than 50000 nodes",
		"99999999999999999x0":       "above 50000",
		"99999999999999999999999x0": "not a number",
		"4x8:H100-80G,,1x0":         "no x",
		"4x8:H100-80G:A100-4G":      "unknown card model",
	} {
		_, err := Parse(text)
		var bad *Error
		if !errors.As(err, &bad) {
			t.Errorf("%q: got %v", text, err)
			continue
		}
		if !strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), "COUNTxCARDS:MODEL") {
			t.Errorf("%q: %q does not say %q and the form", text, err, reason)
		}
		if !strings.Contains(text, bad.Part) {
			t.Errorf("%q: the part %q is not of it", text, bad.Part)
		}
	}
}

// TestDefault: the parser reads the default.
func TestDefault(t *testing.T) {
	if nodes, err := Parse(Default); err != nil || len(nodes) != 10 {
		t.Errorf("got %d nodes, %v", len(nodes), err)
	}
}

// TestNamesAreUnique: whatever is asked for, no two nodes share a name, and the
// numbers within a pool have no holes.
func TestNamesAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"1x0", "3x0", "2x8:H100-80G", "1x4:h100-80g", "2x1:FOO-32G", "1x2:T4-16G"}).Draw(t, "part")
		})
		text := strings.Join(rapid.SliceOfN(part, 1, 8).Draw(t, "parts"), ",")
		nodes, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		seen, next := map[string]bool{}, map[string]int{}
		for _, n := range nodes {
			if seen[n.Name] {
				t.Fatalf("%s: two nodes are called %s", text, n.Name)
			}
			if n.Index != next[n.Pool] {
				t.Fatalf("%s: %s has index %d, want %d", text, n.Name, n.Index, next[n.Pool])
			}
			seen[n.Name] = true
			next[n.Pool]++
		}
	})
}

// TestModels: the table is consistent: the memory in a name is about
// what the card has.
func TestModels(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range models {
		if seen[m.Name] || seen[m.Product] {
			t.Errorf("%s is listed twice", m.Name)
		}
		seen[m.Name], seen[m.Product] = true, true
		parts := memoryInName.FindStringSubmatch(m.Name)
		if parts == nil {
			t.Errorf("%s does not end in its memory", m.Name)
			continue
		}
		named, _ := ParseModel("OTHER-" + parts[2] + "G")
		if m.MemoryMB < named.MemoryMB*9/10 || m.MemoryMB > named.MemoryMB {
			t.Errorf("%s has %d MB", m.Name, m.MemoryMB)
		}
		if m.TFLOPS == 0 {
			t.Errorf("%s has no rating", m.Name)
		}
	}
}
