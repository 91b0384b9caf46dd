package jobs

import (
	"flag"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write generated files")

// TestManifestsAreTheTables: the manifests that are installed follow from the table.
func TestManifestsAreTheTables(t *testing.T) {
	var roles []any
	for _, role := range Roles() {
		roles = append(roles, role)
	}
	for file, objects := range map[string][]any{"jobs.yaml": Manifests(), "roles.yaml": roles} {
		t.Run(file, func(t *testing.T) { isWritten(t, "../../deploy/queue/"+file, objects) })
	}
}

func isWritten(t *testing.T, file string, objects []any) {
	t.Helper()
	documents := []string{"# Made from internal/jobs/kinds/kinds.yaml by: go test ./internal/jobs -run Manifests -update\n"}
	for _, object := range objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var plain map[string]any
		if err := yaml.Unmarshal(data, &plain); err != nil {
			t.Fatal(err)
		}
		delete(plain["metadata"].(map[string]any), "creationTimestamp")
		if plain["rules"] == nil {
			delete(plain, "rules")
		}
		if data, err = yaml.Marshal(plain); err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(data))
	}
	want := documents[0] + strings.Join(documents[1:], "---\n")
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Fatalf("%s is not what the table says: run go test ./internal/jobs -run Manifests -update", file)
	}
}
