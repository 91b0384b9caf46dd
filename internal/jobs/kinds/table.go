package kinds

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/elastic-ai/elastic/api/jobs/v1alpha1"
)

//go:embed kinds.yaml
var builtIn []byte

// Kind is a row of the table, ready for use.
type Kind struct {
	// Name as Kueue's configuration writes it, or of the JobKind.
	Name string
	GVK  schema.GroupVersionKind
	Spec v1alpha1.JobKindSpec

	// codec reads and writes pod sets where paths cannot say how.
	codec podSetCodec

	suspend     FieldPath
	clearOnStop []FieldPath
	podSets     []podSetRow
	managedBy   FieldPath
	sync, grows []FieldPath
	forward     []FieldPath

	priorityClass, skip, succeeded, failed, message, ready, active, onHold, scaledBy expr

	validations         []validationRow
	labels, annotations []FieldPath
	group               *groupRow
}

type validationRow struct {
	rule    expr
	path    FieldPath
	message string
}

type podSetRow struct {
	v1alpha1.PodSet
	each, nameFrom, template FieldPath
	inject                   injectPaths
	instead                  []FieldPath
	setCount                 []setCountRow

	when, pod, sidecars, count, minCount, reclaimable, subGroups, atLeast, indexOffset expr
}

type setCountRow struct {
	path FieldPath
	when expr
}

type groupRow struct {
	object, key, podSet expr
	fixed               []FieldPath
}

// Suspends: jobs of the kind have a suspend flag of their own.
func (k *Kind) Suspends() bool { return k.suspend != nil }

func (k *Kind) IsPod() bool { return k.GVK.Group == "" && k.GVK.Kind == "Pod" }

// Table lists the built-in kinds. Their expressions, which a test compiles, are compiled when they
// are first used: a command needs those of one kind only.
var Table = sync.OnceValue(func() []*Kind {
	var file struct {
		Shared any `json:"shared"`
		Kinds  []struct {
			Name                 string `json:"name"`
			v1alpha1.JobKindSpec `json:",inline"`
		} `json:"kinds"`
	}
	unknown := func(d *json.Decoder) *json.Decoder { d.DisallowUnknownFields(); return d }
	if err := yaml.Unmarshal(builtIn, &file, unknown); err != nil {
		panic(fmt.Sprintf("kinds: kinds.yaml: %v", err))
	}
	seen := map[schema.GroupVersionKind]bool{}
	var table []*Kind
	for _, row := range file.Kinds {
		kind, err := (&compiler{later: true}).kind(row.Name, row.JobKindSpec)
		if err != nil {
			panic(fmt.Sprintf("kinds: kinds.yaml: %s: %v", row.Name, err))
		}
		if seen[kind.GVK] {
			panic(fmt.Sprintf("kinds: two rows for %s", kind.GVK))
		}
		seen[kind.GVK] = true
		table = append(table, kind)
	}
	return table
})

// Names of the built-in kinds.
func Names() []string {
	var names []string
	for _, kind := range Table() {
		names = append(names, kind.Name)
	}
	return names
}

// BuiltIn are the rows with these names, or all if there are none.
func BuiltIn(names []string) ([]*Kind, error) {
	if len(names) == 0 {
		return slices.Clone(Table()), nil
	}
	var out []*Kind
	for _, name := range names {
		at := slices.IndexFunc(Table(), func(k *Kind) bool { return k.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("integrations.frameworks: no kind of job is called %q; there are %s", name, strings.Join(Names(), ", "))
		}
		out = append(out, Table()[at])
	}
	return out, nil
}
