package features

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The table has the gates of the pinned Kueue, with its defaults, and those locked that are locked there.
func TestGatesAreKueues(t *testing.T) {
	want := gatesOfKueue(t)
	if len(want) < 80 {
		t.Fatalf("only %d gates found in Kueue's source: the reading is broken", len(want))
	}
	for name, there := range want {
		g, known := gates[name]
		switch {
		case !known:
			t.Errorf("Kueue has the gate %s, and nobody decided what becomes of it", name)
		case g.byDefault != there.byDefault:
			t.Errorf("%s is %t by default in Kueue", name, there.byDefault)
		case (g.treatment == locked) != there.locked:
			t.Errorf("%s: locked in Kueue: %t", name, there.locked)
		}
	}
	for name := range gates {
		if _, known := want[name]; !known {
			t.Errorf("Kueue has no gate %s", name)
		}
	}
}

// gateOfKueue is what the newest version of one says.
type gateOfKueue struct{ byDefault, locked bool }

// gatesOfKueue reads them from the source of the pinned version.
func gatesOfKueue(t *testing.T) map[string]gateOfKueue {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(strings.TrimSpace(string(dir)), "pkg", "features", "kube_features.go")
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names, found := map[string]string{}, map[string]gateOfKueue{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if kind, ok := n.Type.(*ast.SelectorExpr); ok && kind.Sel.Name == "Feature" {
				names[n.Names[0].Name] = strings.Trim(n.Values[0].(*ast.BasicLit).Value, `"`)
			}
		case *ast.KeyValueExpr:
			gate, isGate := n.Key.(*ast.Ident)
			versions, isList := n.Value.(*ast.CompositeLit)
			if !isGate || !isList || names[gate.Name] == "" {
				return true
			}
			newest, says := versions.Elts[len(versions.Elts)-1].(*ast.CompositeLit), map[string]bool{}
			for _, field := range newest.Elts {
				kv := field.(*ast.KeyValueExpr)
				value, isName := kv.Value.(*ast.Ident)
				says[kv.Key.(*ast.Ident).Name] = isName && value.Name == "true"
			}
			found[names[gate.Name]] = gateOfKueue{says["Default"], says["LockToDefault"]}
			return false
		}
		return true
	})
	return found
}

func TestNew(t *testing.T) {
	for name, tc := range map[string]struct {
		given map[string]bool
		want  string // part of the error
	}{
		"nothing":                                 {},
		"a switch on":                             {given: map[string]bool{"PartialAdmission": true}},
		"a switch off":                            {given: map[string]bool{"PartialAdmission": false}},
		"what is locked off, off":                 {given: map[string]bool{"MultiKueueAllowInsecureKubeconfigs": false}},
		"what is locked off, on":                  {given: map[string]bool{"MultiKueueAllowInsecureKubeconfigs": true}, want: "MultiKueueAllowInsecureKubeconfigs: it is locked to false, as in Kueue"},
		"what is locked on, on":                   {given: map[string]bool{"HierarchicalCohorts": true}},
		"what is locked on, off":                  {given: map[string]bool{"HierarchicalCohorts": false}, want: "HierarchicalCohorts: it is locked to true, as in Kueue"},
		"what is always there, on":                {given: map[string]bool{"FlavorFungibility": true}},
		"what is always there, off":               {given: map[string]bool{"FlavorFungibility": false}, want: "FlavorFungibility: elastic-queue cannot switch it off"},
		"what means nothing here, on":             {given: map[string]bool{"TASCacheTopologyTree": true}},
		"what means nothing here, off":            {given: map[string]bool{"TASCacheTopologyTree": false}},
		"a name that is nearly one":               {given: map[string]bool{"PartialAdmision": true}, want: "near it are PartialAdmission"},
		"a name like no other":                    {given: map[string]bool{"Zebra": true}, want: `"Zebra": there is none of that name`},
		"two problems are both told":              {given: map[string]bool{"MultiKueueAllowInsecureKubeconfigs": true, "Zebra": true}, want: `"Zebra"`},
		"on, and what it needs is off by default": {given: map[string]bool{"UnadmittedWorkloadsExplicitStatus": true}, want: "UnadmittedWorkloadsExplicitStatus requires UnadmittedWorkloadsObservability to be enabled"},
		"on, without what it needs":               {given: map[string]bool{"KueueDRAIntegrationExtendedResource": true, "KueueDRAIntegration": false}, want: "KueueDRAIntegrationExtendedResource requires KueueDRAIntegration to be enabled"},
		"elastic jobs in no topology":             {given: map[string]bool{"ElasticJobsViaWorkloadSlicesWithTAS": true, "TopologyAwareScheduling": false}, want: "ElasticJobsViaWorkloadSlicesWithTAS requires TopologyAwareScheduling to be enabled"},
		"off, with what needed it":                {given: map[string]bool{"KueueDRAIntegration": false}},
		"a letter in the wrong case is no":        {given: map[string]bool{"partialadmission": true}, want: "near it are PartialAdmission"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(tc.given)
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestEnabled(t *testing.T) {
	set, err := New(map[string]bool{"PartialAdmission": false, "DisableWaitForPodsReady": true, "KueueDRAIntegration": false})
	if err != nil {
		t.Fatal(err)
	}
	for gate, want := range map[Gate]bool{
		PartialAdmission: false, DisableWaitForPodsReady: true, // as given
		TLSOptions: true, SparkApplicationIntegration: false, // by default
		PartitionableDevices: false, // with the one it needs
	} {
		if set.Enabled(gate) != want {
			t.Errorf("%s is %t", gate, !want)
		}
	}
}

func TestFlag(t *testing.T) {
	gates := map[string]bool{"FromFile": true, "Both": true}
	flag := Flag{&gates}
	if err := flag.Set("Both=false, New=true"); err != nil {
		t.Fatal(err)
	}
	if got := flag.String(); got != "Both=false,FromFile=true,New=true" {
		t.Errorf("got %s", got)
	}
	for _, wrong := range []string{"A", "A=maybe", "=true,B"} {
		if err := flag.Set(wrong); err == nil {
			t.Errorf("%q is no list of gates", wrong)
		}
	}
}

// The reference names every gate, under what becomes of it.
func TestReferenceNamesEveryGate(t *testing.T) {
	data, err := os.ReadFile("../../docs/reference/kueue-configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for heading, treatment := range map[string]treatment{
		"**Honoured both ways:**": switches, "**Always on here;**": always, "**Locked, as in Kueue;**": locked, "**Accepted, and mean nothing:**": idle,
	} {
		_, after, found := strings.Cut(string(data), heading)
		if !found {
			t.Fatalf("%s is missing", heading)
		}
		line, _, _ := strings.Cut(after, "\n")
		words := strings.FieldsFunc(line, func(r rune) bool { return r == ',' || r == ' ' || r == '.' })
		for name, g := range gates {
			if (g.treatment == treatment) != slices.Contains(words, name) {
				t.Errorf("%s: %s is in the wrong place", heading, name)
			}
		}
	}
}
