package kueueconfig

import (
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kueue/apis/config/v1beta1"
	"sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

// paths of every value a person can write.
func paths(t reflect.Type, path string) (out []string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if isLeaf(t) {
		return []string{path}
	}
	for f := range t.Fields() {
		if f.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue
		}
		below := path
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			below = strings.TrimPrefix(path+"."+name, ".")
		}
		out = append(out, paths(f.Type, below)...)
	}
	return out
}

// A field that a new version of Kueue brings fails here until someone decides
// what becomes of it.
func TestEveryFieldIsDecided(t *testing.T) {
	v1, v2 := paths(reflect.TypeFor[v1beta1.Configuration](), ""), paths(reflect.TypeFor[v1beta2.Configuration](), "")
	if len(v2) < 60 {
		t.Fatalf("only %d fields found: the walk is broken", len(v2))
	}
	for _, path := range append(v1, v2...) {
		if _, known := reasonFor(path); !known {
			t.Errorf("%s is not in the table", path)
		}
	}
	for path := range fields {
		found := slices.ContainsFunc(append(v1, v2...), func(p string) bool { return p == path || strings.HasPrefix(p, path+".") })
		if !found {
			t.Errorf("%s is in the table, but in no version of the file", path)
		}
	}
	// The elements of lists of structs are taken whole.
	for element, known := range map[reflect.Type]string{
		reflect.TypeFor[v1beta2.ResourceTransformation]():      "input strategy multiplyBy outputs",
		reflect.TypeFor[v1beta2.MultiKueueExternalFramework](): "name",
		reflect.TypeFor[v1beta2.DeviceClassMapping]():          "name deviceClassNames sources",
		reflect.TypeFor[v1beta2.DeviceClassSourceConfig](): "counter.name counter.driver counter.deviceSelector.cel.expression" +
			" capacity.name capacity.driver capacity.deviceSelector.cel.expression",
	} {
		if got := strings.Join(paths(element, ""), " "); got != known {
			t.Errorf("%s has the fields %s: are all of them honoured?", element, got)
		}
	}
}

// sample is one of two different values a field may have.
func sample(path string, v reflect.Value, second bool) any {
	n := 7
	if second {
		n = 8
	}
	switch path {
	case "waitForPodsReady.requeuingStrategy.timestamp":
		return []v1beta2.RequeuingTimestamp{v1beta2.CreationTimestamp, v1beta2.EvictionTimestamp}[n-7]
	case "multiKueue.dispatcherName":
		return []string{v1beta2.MultiKueueDispatcherModeAllAtOnce, "example.com/own"}[n-7]
	case "fairSharing.preemptionStrategies":
		return []v1beta2.PreemptionStrategy{v1beta2.LessThanInitialShare, v1beta2.LessThanOrEqualToFinalShare}[n-7 : n-6]
	}
	switch v.Interface().(type) {
	case metav1.Duration:
		return metav1.Duration{Duration: time.Duration(n) * time.Second}
	case metav1.LabelSelector:
		return metav1.LabelSelector{MatchLabels: map[string]string{"a": strconv.Itoa(n)}}
	}
	switch v.Kind() {
	case reflect.Bool:
		return second
	case reflect.String:
		return strconv.Itoa(n)
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Float32:
		return reflect.ValueOf(n).Convert(v.Type()).Interface()
	case reflect.Slice:
		return reflect.MakeSlice(v.Type(), n, n).Interface()
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.ValueOf(strconv.Itoa(n)).Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
		return m.Interface()
	}
	return nil
}

// set puts a sample into one field of a file that says nothing else.
func set(t *testing.T, path string, second bool) *v1beta2.Configuration {
	t.Helper()
	in := &v1beta2.Configuration{}
	v1beta2.SetDefaults_Configuration(in)
	if strings.HasPrefix(path, "multiKueue.incrementalDispatcherConfig") {
		in.MultiKueue.DispatcherName = ptr.To(v1beta2.MultiKueueDispatcherModeIncremental)
	}
	at := reflect.ValueOf(in).Elem()
	for name := range strings.SplitSeq(path, ".") {
		if at.Kind() == reflect.Pointer {
			if at.IsNil() {
				at.Set(reflect.New(at.Type().Elem()))
			}
			at = at.Elem()
		}
		at = fieldByJSON(at, name)
		if !at.IsValid() {
			return nil
		}
	}
	if at.Kind() == reflect.Pointer {
		if at.IsNil() {
			at.Set(reflect.New(at.Type().Elem()))
		} else { // defaults share pointers
			fresh := reflect.New(at.Type().Elem())
			fresh.Elem().Set(at.Elem())
			at.Set(fresh)
		}
		at = at.Elem()
	}
	value := sample(path, at, second)
	if value == nil {
		t.Fatalf("no sample for %s (%s)", path, at.Type())
	}
	at.Set(reflect.ValueOf(value).Convert(at.Type()))
	return in
}

func fieldByJSON(v reflect.Value, name string) reflect.Value {
	for _, f := range reflect.VisibleFields(v.Type()) {
		if got, _, _ := strings.Cut(f.Tag.Get("json"), ","); got == name {
			return v.FieldByIndex(f.Index)
		}
	}
	return reflect.Value{}
}

// What the table calls honoured changes our configuration, and what it refuses
// is an error that names the field.
func TestFieldsDoWhatTheTableSays(t *testing.T) {
	read := func(in *v1beta2.Configuration) (*v1alpha1.QueueConfiguration, error) {
		cfg := v1alpha1.NewQueueConfiguration()
		return cfg, FromV1beta2(in, cfg)
	}
	for _, path := range paths(reflect.TypeFor[v1beta2.Configuration](), "") {
		first, err := read(set(t, path, false))
		other, otherErr := read(set(t, path, true))
		reason, _ := reasonFor(path)
		switch {
		case reason != honoured && (otherErr == nil || !strings.Contains(otherErr.Error(), path+": "+reason)):
			t.Errorf("%s is refused by the table, and can be set: %v", path, otherErr)
		case reason == honoured && (err != nil || otherErr != nil):
			t.Errorf("%s: %v, %v", path, err, otherErr)
		case reason == honoured && reflect.DeepEqual(first, other):
			t.Errorf("%s is honoured by the table, but nothing depends on its value", path)
		}
	}
}

// The reference names what is refused, with the reason.
func TestReferenceNamesWhatIsRefused(t *testing.T) {
	data, err := os.ReadFile("../../../docs/reference/kueue-configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for path, reason := range fields {
		row := "| `" + path + "` | " + reason + " |"
		if listed := strings.Contains(string(data), "| `"+path+"` |"); listed != (reason != honoured) || listed && !strings.Contains(string(data), row) {
			t.Errorf("docs/reference/kueue-configuration.md must have the row %s", row)
		}
	}
}
