package v1alpha1

import (
	"os"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Every field that a file may hold is in the reference.
func TestReferenceNamesEveryField(t *testing.T) {
	data, err := os.ReadFile("../../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	reference := string(data)
	for _, file := range []any{QueueConfiguration{}, GPUSchedulerConfiguration{}, GPUAgentConfiguration{}, WebConfiguration{}} {
		for _, path := range paths(reflect.TypeOf(file), "") {
			if !strings.Contains(reference, "| `"+path+"` |") {
				t.Errorf("%T: %s is not in docs/reference/configuration.md", file, path)
			}
		}
	}
}

// paths lists the fields a person can set; structs of other projects that are
// written as one value count as one.
func paths(t reflect.Type, prefix string) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	whole := t == reflect.TypeFor[metav1.Duration]() || t == reflect.TypeFor[metav1.LabelSelector]()
	if t.Kind() != reflect.Struct || whole {
		return []string{strings.TrimSuffix(prefix, ".")}
	}
	var out []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
		case name == "":
			out = append(out, paths(f.Type, prefix)...)
		default:
			out = append(out, paths(f.Type, prefix+name+".")...)
		}
	}
	return out
}
