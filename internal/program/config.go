package program

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Formats are files of other kinds that a program reads as well: each function
// puts the document, as JSON, into the program's own configuration.
type Formats[C any] map[schema.GroupVersionKind]func(doc []byte, cfg C) error

// LoadConfig reads a file into cfg, which holds the defaults and says by its
// TypeMeta which kind of file is wanted. A field that cfg does not have is an
// error that names the field and the nearest one it does have.
func LoadConfig[C any](path string, cfg C, others Formats[C]) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	if err := decodeConfig(raw, cfg, others); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	return nil
}

func decodeConfig[C any](raw []byte, cfg C, others Formats[C]) error {
	want := kindOf(cfg)
	doc, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(doc, &head); err != nil {
		return err
	}
	got := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
	if other := others[got]; other != nil {
		return other(doc, cfg)
	}
	if got != want {
		return fmt.Errorf("it is a %q of %q, this program reads a %q of %q",
			head.Kind, head.APIVersion, want.Kind, want.GroupVersion())
	}
	return DecodeStrict(doc, cfg)
}

// DecodeStrict reads a JSON document into cfg; every field must be one of its.
func DecodeStrict(doc []byte, cfg any) error {
	strict, err := json.UnmarshalStrict(doc, cfg)
	if err != nil {
		return err
	}
	var problems []error
	for _, problem := range strict {
		problems = append(problems, suggest(problem, reflect.TypeOf(cfg)))
	}
	return errors.Join(problems...)
}

func kindOf(cfg any) schema.GroupVersionKind {
	v := reflect.ValueOf(cfg).Elem()
	return schema.FromAPIVersionAndKind(v.FieldByName("APIVersion").String(), v.FieldByName("Kind").String())
}

var unknownField = regexp.MustCompile(`^unknown field "(.+)"$`)

// suggest adds the nearest known field to an unknown-field error.
func suggest(problem error, root reflect.Type) error {
	match := unknownField.FindStringSubmatch(problem.Error())
	if match == nil {
		return problem
	}
	path := strings.Split(match[1], ".")
	names := fieldNames(descend(root, path[:len(path)-1]))
	best := Nearest(path[len(path)-1], names)
	if best == "" {
		return problem
	}
	return fmt.Errorf("%w: did you mean %q?", problem, strings.Join(append(path[:len(path)-1:len(path)-1], best), "."))
}

// descend follows a path of JSON names to the struct that holds its end.
func descend(t reflect.Type, path []string) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if len(path) == 0 || t.Kind() != reflect.Struct {
		return t
	}
	name, _, _ := strings.Cut(path[0], "[")
	for _, f := range reflect.VisibleFields(t) {
		if jsonName(f) == name {
			return descend(f.Type, path[1:])
		}
	}
	return t
}

func fieldNames(t reflect.Type) []string {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name := jsonName(f); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// Nearest is the candidate with the smallest edit distance, or none when even
// that one shares too little with the word to be what was meant.
func Nearest(word string, candidates []string) string {
	best, bestDistance := "", len(word)/2+2
	for _, candidate := range candidates {
		if d := editDistance(strings.ToLower(word), strings.ToLower(candidate)); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
