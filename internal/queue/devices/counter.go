package devices

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/lru"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/features"
)

// Counter knows how devices count, and the objects that this depends on. It has no lock: only the
// loop may use it.
type Counter struct {
	mapped   map[string]mapping // by DeviceClass
	inBytes  map[corev1.ResourceName]bool
	extended bool
	cel      *compiler

	templates map[client.ObjectKey]*resourceapi.ResourceClaimTemplate
	classes   map[string]*resourceapi.DeviceClass
	slices    map[string]*resourceSlice

	// Derived from these, until they change.
	classOfExtended map[corev1.ResourceName]string // the class that serves an extended resource
	pools           []*resourceSlice

	// generation of the classes and devices. What claims counted as in an older one is valid until
	// they are counted again.
	generation int
	counted    map[claimKey]countedClaim

	selections *lru.Cache // by key
	background func(*Search)
	searches   map[string][]*Search // that are not done yet, by namespace; the first is under way
	budget     int64                // CEL cost that may be spent in the loop
	refilledAt time.Time

	changes changes
}

// changes are the objects that changed since Changed was last called.
type changes struct {
	templates        map[client.ObjectKey]bool
	classes, devices bool
}

func (n *changes) template(key client.ObjectKey) {
	if n.templates == nil {
		n.templates = map[client.ObjectKey]bool{}
	}
	n.templates[key] = true
}

// New reads the configuration; nil if devices do not count.
func New(given []kueueconfig.DeviceClassMapping, gates features.Set) (*Counter, error) {
	cel := &compiler{lru.New(mostCompiled)}
	if err := validate(given, gates, cel); err != nil {
		return nil, err
	}
	if !gates.Enabled(features.DeviceClaims) {
		return nil, nil
	}
	mapped, inBytes := read(given), map[corev1.ResourceName]bool{}
	for _, class := range mapped {
		for _, s := range class.sources {
			inBytes[s.resource] = true
		}
	}
	return &Counter{
		mapped: mapped, inBytes: inBytes, extended: gates.Enabled(features.DeviceExtendedResources), cel: cel,
		templates: map[client.ObjectKey]*resourceapi.ResourceClaimTemplate{},
		classes:   map[string]*resourceapi.DeviceClass{},
		slices:    map[string]*resourceSlice{},

		counted: map[claimKey]countedClaim{}, selections: lru.New(mostSelections), searches: map[string][]*Search{},
	}, nil
}

// HasSources says that some devices count by something other than their number.
func (b *Counter) HasSources() bool { return b != nil && len(b.inBytes) > 0 }

// InBytes says that a resource is written in units of bytes, as Kueue writes what sources count.
func (b *Counter) InBytes(name corev1.ResourceName) bool { return b != nil && b.inBytes[name] }

// Kinds that the Counter has to be shown. If no class is mapped, claims are refused whatever they
// say.
func (b *Counter) Kinds() []client.Object {
	var kinds []client.Object
	if b.extended || len(b.mapped) > 0 {
		kinds = append(kinds, &resourceapi.DeviceClass{})
	}
	if len(b.mapped) > 0 {
		kinds = append(kinds, &resourceapi.ResourceClaimTemplate{}, &resourceapi.ResourceSlice{})
	}
	return kinds
}

// IsDeviceObject says that the object is of one of these kinds.
func IsDeviceObject(obj client.Object) bool {
	switch obj.(type) {
	case *resourceapi.DeviceClass, *resourceapi.ResourceClaimTemplate, *resourceapi.ResourceSlice:
		return true
	}
	return false
}

// ObjectChanged handles an object that changed or was deleted.
func (b *Counter) ObjectChanged(obj client.Object, deleted bool) {
	switch o := obj.(type) {
	case *resourceapi.ResourceClaimTemplate:
		if key := client.ObjectKeyFromObject(o); store(b.templates, key, o, deleted, func(t *resourceapi.ResourceClaimTemplate) any { return t.Spec.Spec }) {
			b.changes.template(key)
		}
	case *resourceapi.DeviceClass:
		// The creation time decides which of two classes serves an extended resource.
		if store(b.classes, o.Name, o, deleted, func(c *resourceapi.DeviceClass) any { return []any{c.Spec, c.CreationTimestamp} }) {
			b.changes.classes, b.classOfExtended = true, nil
			b.generation++
		}
	case *resourceapi.ResourceSlice:
		if store(b.slices, o.Name, &resourceSlice{o}, deleted, func(s *resourceSlice) any { return s.Spec }) {
			b.changes.devices, b.pools = true, nil
			b.generation++
		}
	}
}

// store an object, and report whether its relevant part changed.
func store[K comparable, O any](known map[K]O, key K, object O, deleted bool, relevant func(O) any) bool {
	before, was := known[key]
	if deleted {
		delete(known, key)
		return was
	}
	if was && equality.Semantic.DeepEqual(relevant(before), relevant(object)) {
		return false
	}
	known[key] = object
	return true
}

// Changed says which pending workloads may be affected by what changed since the last call; nil:
// none.
func (b *Counter) Changed() func(wl *kueue.Workload) bool {
	seen := b.changes
	if len(seen.templates) == 0 && !seen.classes && !seen.devices {
		return nil
	}
	b.changes = changes{}
	return func(wl *kueue.Workload) bool {
		for i := range wl.Spec.PodSets {
			spec := &wl.Spec.PodSets[i].Template.Spec
			if seen.classes && (len(spec.ResourceClaims) > 0 || requests(spec, isExtended)) {
				return true
			}
			for _, claim := range spec.ResourceClaims {
				key := templateKey(wl, &claim)
				if seen.templates[key] || seen.devices && b.dependsOnDevices(b.templates[key]) {
					return true
				}
			}
		}
		return false
	}
}

// dependsOnDevices says that what a claim counts as depends on which devices there are.
func (b *Counter) dependsOnDevices(template *resourceapi.ResourceClaimTemplate) bool {
	if template == nil {
		return false
	}
	for _, r := range template.Spec.Spec.Devices.Requests {
		if r.Exactly != nil && (len(r.Exactly.Selectors) > 0 || len(b.mapped[r.Exactly.DeviceClassName].sources) > 0) {
			return true
		}
	}
	return false
}

// templateKey names the template of a claim; the zero key if it has none.
func templateKey(wl *kueue.Workload, claim *corev1.PodResourceClaim) client.ObjectKey {
	if claim.ResourceClaimTemplateName == nil {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: wl.Namespace, Name: *claim.ResourceClaimTemplateName}
}

// requests says that a container requests a resource of some kind.
func requests(spec *corev1.PodSpec, kind func(corev1.ResourceName) bool) bool {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for _, list := range []corev1.ResourceList{containers[i].Resources.Requests, containers[i].Resources.Limits} {
				for name := range list {
					if kind(name) {
						return true
					}
				}
			}
		}
	}
	return false
}

// isExtended says that a resource is not one of Kubernetes' own.
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.ResourceDefaultNamespacePrefix)
}
