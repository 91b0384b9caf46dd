package metrics

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write generated files")

// The reference is made from the definitions.
func TestMetricsReference(t *testing.T) {
	const file = "../../../docs/reference/metrics.md"
	var b strings.Builder
	b.WriteString(`# Metrics of elastic-queue

Served at ` + "`metrics.bindAddress`" + `. Kueue's metrics have Kueue's names and labels; all carry ` + "`replica_role`" + `
(` + "`leader`, or `standalone`" + ` without leader election). What happens is counted as it happens; how things stand is
looked up at each scrape, by the replica that leads.

Of Kueue's, these are not there: ` + "`kueue_admission_cycle_preemption_skips`" + ` (there are no cycles), and MultiKueue's.

Made from internal/queue/metrics/definitions.go by: ` + "`go test ./internal/queue/metrics -run Reference -update`" + `

| metric | type | labels | what it is | there with |
|---|---|---|---|---|
`)
	for _, d := range Definitions() {
		labels := slices.DeleteFunc(slices.Clone(d.Labels), func(l string) bool { return l == "replica_role" })
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.Name, d.Type, strings.Join(labels, ", "), d.Help, d.When)
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("%s is not what the definitions say: run go test ./internal/queue/metrics -run Reference -update", file)
	}
}
