package metrics

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// customLabels are labels and annotations of objects that metrics about them carry, with Kueue's gate
// CustomMetricLabels. What happens is counted by several goroutines.
type customLabels struct {
	specs  map[kueueconfig.SourceKind][]kueueconfig.ControllerMetricsCustomLabel
	mu     sync.RWMutex
	values map[customSource][]string
}

// customSource is an object that metrics are about.
type customSource struct {
	kind            kueueconfig.SourceKind
	namespace, name string
}

func newCustomLabels(specs []kueueconfig.ControllerMetricsCustomLabel) *customLabels {
	c := &customLabels{specs: map[kueueconfig.SourceKind][]kueueconfig.ControllerMetricsCustomLabel{}, values: map[customSource][]string{}}
	for _, spec := range specs {
		kind := ptr.Deref(spec.SourceKind, kueueconfig.DefaultCustomMetricLabelSourceKind)
		c.specs[kind] = append(c.specs[kind], spec)
	}
	return c
}

// names of the labels that the metrics about some kinds carry.
func (c *customLabels) names(kinds ...kueueconfig.SourceKind) []string {
	var names []string
	for _, kind := range kinds {
		for _, spec := range c.specs[kind] {
			names = append(names, "custom_"+spec.Name)
		}
	}
	return names
}

// of an object, in the order of their names.
func (c *customLabels) of(kind kueueconfig.SourceKind, obj client.Object) []string {
	var out []string
	for _, spec := range c.specs[kind] {
		from, key := obj.GetLabels(), spec.Name
		switch {
		case spec.SourceAnnotationKey != "":
			from, key = obj.GetAnnotations(), spec.SourceAnnotationKey
		case spec.SourceLabelKey != "":
			key = spec.SourceLabelKey
		}
		value := from[key]
		if len(spec.TrackedValues) > 0 && !slices.Contains(spec.TrackedValues, value) {
			value = kueueconfig.UntrackedCustomLabelValue
		}
		out = append(out, value)
	}
	return out
}

// sourceKind is the kind of an object that metrics may be about; empty for others.
func sourceKind(obj client.Object) kueueconfig.SourceKind {
	switch obj.(type) {
	case *kueue.ClusterQueue:
		return kueueconfig.SourceKindClusterQueue
	case *kueue.LocalQueue:
		return kueueconfig.SourceKindLocalQueue
	case *kueue.Cohort:
		return kueueconfig.SourceKindCohort
	}
	return ""
}

// note what an object says now.
func (c *customLabels) note(obj client.Object, gone bool) {
	kind := sourceKind(obj)
	if len(c.specs[kind]) == 0 {
		return
	}
	source := customSource{kind, obj.GetNamespace(), obj.GetName()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if gone {
		delete(c.values, source)
		return
	}
	c.values[source] = c.of(kind, obj)
}

// get is what an object said last; empty labels if it is not known.
func (c *customLabels) get(source customSource) []string {
	if len(c.specs[source.kind]) == 0 {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if values := c.values[source]; values != nil {
		return values
	}
	return make([]string, len(c.specs[source.kind]))
}

// about is the kind of object that a metric is about, and the positions of its name and namespace among the labels.
type about struct {
	kind            kueueconfig.SourceKind
	name, namespace int
}

func aboutOf(labels []string) about {
	namespace := slices.Index(labels, "namespace")
	if at := slices.Index(labels, "name"); at >= 0 && namespace >= 0 {
		return about{kueueconfig.SourceKindLocalQueue, at, namespace}
	}
	for _, name := range []string{"cluster_queue", "preempting_cluster_queue"} {
		if at := slices.Index(labels, name); at >= 0 {
			return about{kueueconfig.SourceKindClusterQueue, at, -1}
		}
	}
	if at := slices.Index(labels, "cohort"); at >= 0 {
		return about{kueueconfig.SourceKindCohort, at, -1}
	}
	return about{}
}

func (a about) source(labels []string) customSource {
	source := customSource{kind: a.kind, name: labels[a.name]}
	if a.namespace >= 0 {
		source.namespace = labels[a.namespace]
	}
	return source
}

// Kueue's bounds of custom labels.
const (
	mostCustomLabels          = 20
	mostCustomLabelsOfKind    = 6
	mostCustomLabelsOfWork    = 2
	mostTrackedValues         = 16
	mostTrackedValuesOfWork   = 12
	customLabelsField         = "customLabels"
	customLabelNameExpression = `^[a-zA-Z][a-zA-Z0-9_]*$`
)

var customLabelName = regexp.MustCompile(customLabelNameExpression)

// validateCustomLabels has Kueue's rules: every value is a series of its own, so there are bounds.
func validateCustomLabels(specs []kueueconfig.ControllerMetricsCustomLabel) error {
	var errs []error
	if len(specs) > mostCustomLabels {
		errs = append(errs, fmt.Errorf("%s: %d are more than %d", customLabelsField, len(specs), mostCustomLabels))
	}
	names, kinds := map[string]bool{}, map[kueueconfig.SourceKind]int{}
	for i, spec := range specs {
		kind := ptr.Deref(spec.SourceKind, kueueconfig.DefaultCustomMetricLabelSourceKind)
		kinds[kind]++
		problems := problemsOf(spec, kind, kinds[kind])
		if names[spec.Name] {
			problems = append(problems, fmt.Errorf("the name %q is taken", spec.Name))
		}
		names[spec.Name] = true
		for _, problem := range problems {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", customLabelsField, i, problem))
		}
	}
	return errors.Join(errs...)
}

// problemsOf one custom label, the nth of its kind.
func problemsOf(spec kueueconfig.ControllerMetricsCustomLabel, kind kueueconfig.SourceKind, nth int) (errs []error) {
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !customLabelName.MatchString(spec.Name) {
		fail("the name %q does not match %s", spec.Name, customLabelNameExpression)
	}
	if spec.SourceLabelKey != "" && spec.SourceAnnotationKey != "" {
		fail("sourceLabelKey and sourceAnnotationKey are mutually exclusive")
	}
	for _, key := range []string{spec.SourceLabelKey, spec.SourceAnnotationKey} {
		if problems := validation.IsQualifiedName(key); key != "" && len(problems) > 0 {
			fail("%q: %s", key, problems[0])
		}
	}
	most, tracked := mostCustomLabelsOfKind, mostTrackedValues
	switch kind {
	case kueueconfig.SourceKindWorkload:
		if most, tracked = mostCustomLabelsOfWork, mostTrackedValuesOfWork; len(spec.TrackedValues) == 0 {
			fail("trackedValues must not be empty when sourceKind is 'Workload'")
		}
	case kueueconfig.SourceKindClusterQueue, kueueconfig.SourceKindLocalQueue, kueueconfig.SourceKindCohort:
	default:
		fail("unknown source kind: %s", kind)
	}
	if nth > most {
		fail("too many custom labels for source kind %s: more than %d", kind, most)
	}
	if len(spec.TrackedValues) > tracked || len(slices.Compact(slices.Sorted(slices.Values(spec.TrackedValues)))) < len(spec.TrackedValues) {
		fail("trackedValues are more than %d, or one of them twice", tracked)
	}
	return errs
}
