package devices

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/internal/features"
)

// mapping is how devices of one class count.
type mapping struct {
	resource corev1.ResourceName
	// sources count something other than devices; none: their number.
	sources []source
}

// source is what devices of a driver take: of a counter that they share, or of their own capacity.
type source struct {
	resource corev1.ResourceName
	driver   string
	selector string
	counter  string
	capacity resourceapi.QualifiedName
}

// kind of a source, as in messages.
func (s *source) kind() string {
	if s.counter != "" {
		return "counter"
	}
	return "capacity"
}

// read the mappings, by class. They were validated.
func read(given []kueueconfig.DeviceClassMapping) map[string]mapping {
	classes := map[string]mapping{}
	for _, m := range given {
		var sources []source
		for _, s := range m.Sources {
			if c := s.Counter; c != nil {
				sources = append(sources, source{resource: m.Name, driver: c.Driver, selector: c.DeviceSelector.CEL.Expression, counter: c.Name})
			}
			if c := s.Capacity; c != nil {
				sources = append(sources, source{resource: m.Name, driver: c.Driver, selector: c.DeviceSelector.CEL.Expression, capacity: c.Name})
			}
		}
		for _, name := range m.DeviceClassNames {
			class, twice := classes[string(name)]
			if !twice {
				class.resource = m.Name
			}
			class.sources = append(class.sources, sources...)
			classes[string(name)] = class
		}
	}
	return classes
}

const (
	maxMappings = 16
	maxClasses  = 8
	maxName     = 253
)

// checker validates the mappings as Kueue does, with its messages.
type checker struct {
	gates    features.Set
	cel      *compiler
	resource map[corev1.ResourceName]corev1.ResourceName // by class that is mapped to it
	counters map[corev1.ResourceName][]string            // of a class
	problems field.ErrorList
}

func validate(given []kueueconfig.DeviceClassMapping, gates features.Set, cel *compiler) error {
	path := field.NewPath("resources", "deviceClassMappings")
	c := &checker{gates: gates, cel: cel, resource: map[corev1.ResourceName]corev1.ResourceName{}, counters: map[corev1.ResourceName][]string{}}
	if len(given) > maxMappings {
		c.add(field.TooMany(path, len(given), maxMappings))
	}
	for i := range given {
		m, at := &given[i], path.Index(i)
		c.name(at.Child("name"), m.Name)
		if slices.ContainsFunc(given[:i], func(other kueueconfig.DeviceClassMapping) bool { return other.Name == m.Name }) {
			c.add(field.Duplicate(at.Child("name"), m.Name))
		}
		c.classes(at.Child("deviceClassNames"), m)
		c.sources(at.Child("sources"), m.Sources)
	}
	return c.problems.ToAggregate()
}

func (c *checker) add(problem *field.Error) { c.problems = append(c.problems, problem) }

func (c *checker) name(path *field.Path, name corev1.ResourceName) {
	if wrong := content.IsLabelKey(string(name)); len(wrong) > 0 {
		c.add(field.Invalid(path, name, strings.Join(wrong, "; ")))
	}
	if len(name) > maxName {
		c.add(field.Invalid(path, name, fmt.Sprintf("must not exceed %d characters", maxName)))
	}
}

func (c *checker) classes(path *field.Path, m *kueueconfig.DeviceClassMapping) {
	if len(m.DeviceClassNames) == 0 {
		c.add(field.Required(path, "at least one device class name is required"))
	}
	if len(m.DeviceClassNames) > maxClasses {
		c.add(field.TooMany(path, len(m.DeviceClassNames), maxClasses))
	}
	for i, class := range m.DeviceClassNames {
		at := path.Index(i)
		c.name(at, class)
		if slices.Contains(m.DeviceClassNames[:i], class) {
			c.add(field.Duplicate(at, class))
		}
		c.mapped(at, class, m)
	}
}

// mapped notes what a class is mapped to. Only counters, and each once, may be counted as several
// resources.
func (c *checker) mapped(path *field.Path, class corev1.ResourceName, m *kueueconfig.DeviceClassMapping) {
	counter := ""
	if len(m.Sources) > 0 && m.Sources[0].Counter != nil {
		counter = m.Sources[0].Counter.Name
	}
	before, twice := c.resource[class]
	switch {
	case !twice:
		c.resource[class] = m.Name
	case before == m.Name:
		return
	case counter == "" || len(c.counters[class]) == 0:
		c.add(field.Invalid(path, class, "device class already mapped to resource "+string(before)))
		return
	case slices.Contains(c.counters[class], counter):
		c.add(field.Invalid(path, class, fmt.Sprintf("device class already has a counter source for counter %q", counter)))
		return
	}
	if counter != "" {
		c.counters[class] = append(c.counters[class], counter)
	}
}

func (c *checker) sources(path *field.Path, sources []kueueconfig.DeviceClassSourceConfig) {
	counters, capacities := 0, 0
	for i, s := range sources {
		at := path.Index(i)
		switch {
		case s.Counter == nil && s.Capacity == nil:
			c.add(field.Required(at, "exactly one source type must be set per entry"))
		case s.Counter != nil && s.Capacity != nil:
			c.add(field.Invalid(at, "counter+capacity", "exactly one source type must be set per entry"))
		case s.Counter != nil:
			counters++
			c.counter(at.Child("counter"), s.Counter)
		default:
			capacities++
			c.capacity(at.Child("capacity"), s.Capacity)
		}
	}
	if counters > 0 && capacities > 0 {
		c.add(field.Invalid(path, len(sources), "cannot mix counter and capacity sources in the same mapping"))
	}
}

func (c *checker) counter(path *field.Path, s *kueueconfig.DeviceClassCounterSource) {
	if !c.gates.Enabled(features.PartitionableDevices) {
		c.add(field.Invalid(path, true, "counter sources require KueueDRAIntegrationPartitionableDevices to be enabled"))
		return
	}
	if s.Name == "" {
		c.add(field.Required(path.Child("name"), ""))
	} else if wrong := validation.IsDNS1123Label(s.Name); len(wrong) > 0 {
		c.add(field.Invalid(path.Child("name"), s.Name, strings.Join(wrong, ",")))
	}
	c.driver(path.Child("driver"), s.Driver)
	c.selector(path, &s.DeviceSelector)
}

func (c *checker) capacity(path *field.Path, s *kueueconfig.DeviceClassCapacitySource) {
	if !c.gates.Enabled(features.ConsumableCapacity) {
		c.add(field.Invalid(path, true, "capacity sources require KueueDRAIntegrationConsumableCapacity to be enabled"))
		return
	}
	c.qualified(path.Child("name"), s.Name)
	c.driver(path.Child("driver"), s.Driver)
	c.selector(path, &s.DeviceSelector)
}

// qualified checks a name as ResourceSlices have them: an identifier, with or without a domain
// before it.
func (c *checker) qualified(path *field.Path, name resourceapi.QualifiedName) {
	domain, identifier, with := strings.Cut(string(name), "/")
	if !with {
		domain, identifier = "", domain
	}
	if with && domain == "" {
		c.add(field.Invalid(path, "", "the domain must not be empty"))
	} else if wrong := validation.IsDNS1123Subdomain(domain); with && len(wrong) > 0 {
		c.add(field.Invalid(path, domain, strings.Join(wrong, ",")))
	}
	if identifier == "" {
		c.add(field.Invalid(path, "", "the name must not be empty"))
	} else if wrong := content.IsCIdentifier(identifier); len(wrong) > 0 {
		c.add(field.Invalid(path, identifier, strings.Join(wrong, ",")))
	}
}

func (c *checker) driver(path *field.Path, name string) {
	switch wrong := validation.IsDNS1123Subdomain(name); {
	case name == "":
		c.add(field.Required(path, ""))
	case len(name) > resourceapi.DriverNameMaxLength:
		c.add(field.Invalid(path, name, fmt.Sprintf("must not exceed %d characters", resourceapi.DriverNameMaxLength)))
	case len(wrong) > 0:
		c.add(field.Invalid(path, name, strings.Join(wrong, ",")))
	}
}

func (c *checker) selector(path *field.Path, s *resourceapi.DeviceSelector) {
	path = path.Child("deviceSelector", "cel", "expression")
	if s.CEL == nil || s.CEL.Expression == "" {
		c.add(field.Required(path, ""))
	} else if compiled := c.cel.compile(s.CEL.Expression); compiled.Error != nil {
		c.add(field.Invalid(path, s.CEL.Expression, fmt.Sprintf("CEL compilation failed: %v", compiled.Error)))
	}
}
