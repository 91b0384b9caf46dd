package devices

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Counted is what each pod of a set takes of a resource, and because of what.
type Counted struct {
	PodSet   string
	Resource corev1.ResourceName
	Amount   resource.Quantity
	From     string
	Instead  corev1.ResourceName // this extended resource; "": no other
}

// charge is what the devices of one pod set count as.
type charge struct{ counted []Counted }

func (c *charge) add(set *kueue.PodSet, name corev1.ResourceName, amount resource.Quantity, from string) {
	c.counted = append(c.counted, Counted{PodSet: string(set.Name), Resource: name, Amount: amount, From: from})
}

// Count adds to w what the devices of its pods count as, or says why it is refused. An admission
// stays as it was counted.
func (b *Counter) Count(w *admission.Workload, wl *kueue.Workload) {
	charges, err := b.charges(wl)
	switch {
	case err == nil:
	case w.Admission != nil:
		return
	case errors.Is(err, errUnfinished):
		w.Unready = err.Error()
		return
	default:
		w.Refused = err.Error()
		return
	}
	for i := range charges {
		charges[i].apply(&w.PodSets[i])
	}
}

// Explain lists what a workload's devices count as; nothing if they cannot be counted.
func (b *Counter) Explain(wl *kueue.Workload) []Counted {
	charges, err := b.charges(wl)
	if err != nil {
		return nil
	}
	var all []Counted
	for _, c := range charges {
		all = append(all, c.counted...)
	}
	return all
}

// apply the charge to one pod of the set. Devices are not part of a node's allocatable resources:
// kube-scheduler allocates them.
func (c *charge) apply(set *admission.PodSet) {
	if len(c.counted) == 0 {
		return
	}
	quota, node := maps.Clone(set.Requests), maps.Clone(set.OnNode())
	for i := range c.counted {
		delete(quota, string(c.counted[i].Instead))
		delete(node, string(c.counted[i].Instead))
	}
	most := int64(math.MaxInt64) / 4 / int64(max(1, set.Count)) // sums must not overflow
	for i := range c.counted {
		name := string(c.counted[i].Resource)
		quota[name] = min(most, quota[name]+min(most, workload.Amount(c.counted[i].Resource, c.counted[i].Amount)))
	}
	set.Requests, set.NodeRequests = quota, node
}

// concerns says that a pod has devices, or may have: most have none.
func (b *Counter) concerns(set kueue.PodSet) bool {
	return len(set.Template.Spec.ResourceClaims) > 0 ||
		b.extended && len(b.classes) > 0 && requests(&set.Template.Spec, func(name corev1.ResourceName) bool { return b.extendedResourceClass(name) != "" })
}

func (b *Counter) charges(wl *kueue.Workload) ([]charge, error) {
	if !slices.ContainsFunc(wl.Spec.PodSets, b.concerns) {
		return nil, nil
	}
	charges := make([]charge, len(wl.Spec.PodSets))
	var problems field.ErrorList
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		path := field.NewPath("spec", "podSets").Index(i).Child("template", "spec")
		for j := range set.Template.Spec.ResourceClaims {
			claim := &set.Template.Spec.ResourceClaims[j]
			if claim.ResourceClaimName != nil {
				return nil, errClaim
			}
			if claim.ResourceClaimTemplateName == nil {
				continue
			}
			counted, err := b.countCached(set, templateKey(wl, claim), path.Child("resourceClaims").Index(j))
			if err != nil {
				return nil, err
			}
			charges[i].counted = append(charges[i].counted, counted...)
		}
		if b.extended {
			problems = append(problems, b.countExtended(&charges[i], set, path)...)
		}
	}
	return charges, problems.ToAggregate()
}

type refusal string

func (r refusal) Error() string { return string(r) }

const (
	errClaim      = refusal("KueueDRAIntegration feature does not support use of resource claims")
	errUnfinished = refusal("The devices that its ResourceClaims select are still being counted")
)

// countedClaim is what a claim counts as, which is the same for all workloads that have it in the
// same place.
type countedClaim struct {
	template   *resourceapi.ResourceClaimTemplate
	generation int
	counted    []Counted
	err        error
}

type claimKey struct {
	template  client.ObjectKey
	set, path string
}

// mostClaimed bounds how many are cached.
const mostClaimed = 4096

// countCached counts a claim of a pod, once until something changes. While its devices are searched
// for again it counts as before.
func (b *Counter) countCached(set *kueue.PodSet, template client.ObjectKey, path *field.Path) ([]Counted, error) {
	key := claimKey{template, string(set.Name), path.String()}
	known, found := b.counted[key]
	found = found && known.template == b.templates[template]
	if found && known.generation == b.generation {
		return known.counted, known.err
	}
	var c charge
	problems := b.countClaim(&c, set, template, path)
	searching := slices.ContainsFunc(problems, func(p *field.Error) bool { return p.Type == unfinished })
	switch {
	case searching && found:
		return known.counted, known.err
	case searching:
		return nil, errUnfinished
	}
	if len(b.counted) >= mostClaimed {
		clear(b.counted)
	}
	b.counted[key] = countedClaim{b.templates[template], b.generation, c.counted, problems.ToAggregate()}
	return c.counted, problems.ToAggregate()
}

// countClaim adds what one claim of a pod counts as, by its template.
func (b *Counter) countClaim(c *charge, set *kueue.PodSet, key client.ObjectKey, path *field.Path) field.ErrorList {
	name := key.Name
	if len(b.mapped) == 0 {
		return field.ErrorList{unmapped(path, "of ResourceClaimTemplate "+name, set)}
	}
	template := b.templates[key]
	if template == nil {
		missing := apierrors.NewNotFound(schema.GroupResource{Group: resourceapi.GroupName, Resource: "ResourceClaimTemplate"}, name)
		return field.ErrorList{field.InternalError(path, fmt.Errorf("failed to get claim spec for ResourceClaimTemplate %s in podset %s: %w", name, set.Name, missing))}
	}
	requests := template.Spec.Spec.Devices.Requests
	at := path.Child("devices", "requests")
	for i := range requests {
		if problem := unsupported(&requests[i], at.Index(i)); problem != nil {
			return field.ErrorList{inTemplate(name, problem)}
		}
	}
	if problems := b.checkSelectors(key, requests, at); len(problems) > 0 {
		for i := range problems {
			problems[i] = inTemplate(name, problems[i])
		}
		return problems
	}
	for i := range requests {
		exactly := requests[i].Exactly
		class, found := b.mapped[exactly.DeviceClassName]
		if !found {
			return field.ErrorList{unmapped(path, exactly.DeviceClassName, set)}
		}
		from := fmt.Sprintf("ResourceClaimTemplate %s, DeviceClass %s", name, exactly.DeviceClassName)
		if len(class.sources) == 0 {
			c.add(set, class.resource, *resource.NewQuantity(exactly.Count, resource.DecimalSI), from)
		}
		for s := range class.sources {
			amount, problem := b.amountFrom(key, &class.sources[s], exactly, at.Index(i))
			if problem != nil {
				return field.ErrorList{problem}
			}
			c.add(set, class.sources[s].resource, amount, from)
		}
	}
	return nil
}

func unmapped(path *field.Path, class string, set *kueue.PodSet) *field.Error {
	return field.NotFound(path.Child("resourceClaimTemplateName"), fmt.Sprintf("DeviceClass %s is not mapped in DRA configuration for podset %s", class, set.Name))
}

func inTemplate(name string, problem *field.Error) *field.Error {
	problem.Detail = fmt.Sprintf("ResourceClaimTemplate %s: %s", name, problem.Detail)
	return problem
}

// unsupported says what of a request cannot be counted; nil: nothing.
func unsupported(r *resourceapi.DeviceRequest, path *field.Path) *field.Error {
	exactly := path.Child("exactly")
	switch {
	case r.FirstAvailable != nil:
		return field.Invalid(path, nil, "FirstAvailable device selection is not supported")
	case r.Exactly == nil:
		return field.Invalid(path, nil, "Exactly must be set if FirstAvailable is nil")
	case ptr.Deref(r.Exactly.AdminAccess, false):
		return field.Invalid(exactly.Child("adminAccess"), nil, "AdminAccess is not supported")
	case r.Exactly.AllocationMode == resourceapi.DeviceAllocationModeAll:
		return field.Invalid(exactly.Child("allocationMode"), r.Exactly.AllocationMode, "AllocationMode 'All' is not supported")
	case r.Exactly.AllocationMode != resourceapi.DeviceAllocationModeExactCount:
		return field.Invalid(exactly.Child("allocationMode"), r.Exactly.AllocationMode, fmt.Sprintf("unsupported allocation mode: %s", r.Exactly.AllocationMode))
	}
	return nil
}

// countExtended adds what extended resources count as that a DeviceClass serves.
func (b *Counter) countExtended(c *charge, set *kueue.PodSet, path *field.Path) (problems field.ErrorList) {
	asked := workload.PodRequests(&set.Template.Spec)
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		amount := asked[name]
		class := b.extendedResourceClass(name)
		if class == "" || amount.Sign() <= 0 {
			continue
		}
		counted, found := b.mapped[class]
		if found && len(counted.sources) > 0 {
			problems = append(problems, field.Invalid(requestingContainer(&set.Template.Spec, path, name), name, besideSources(name, class, &counted.sources[0])))
			continue
		}
		if _, whole := amount.AsInt64(); !whole {
			problems = append(problems, field.Invalid(requestingContainer(&set.Template.Spec, path, name).Child("resources", "requests", string(name)), amount.String(),
				"extended resource quantity must be an integer"))
			continue
		}
		as := name
		if found {
			as = counted.resource
		}
		c.add(set, as, amount, fmt.Sprintf("resource %s, DeviceClass %s", name, class))
		c.counted[len(c.counted)-1].Instead = name
	}
	return problems
}

func besideSources(name corev1.ResourceName, class string, s *source) string {
	if s.counter != "" {
		return fmt.Sprintf("extended resource %s resolves to DeviceClass %s with counters configured;"+
			" use ResourceClaimTemplates with CEL selectors for counter-based quota", name, class)
	}
	return fmt.Sprintf("extended resource %s resolves to DeviceClass %s with capacity sources configured;"+
		" use ResourceClaimTemplates with capacity.requests for capacity-based quota", name, class)
}

// requestingContainer is the first container that requests a resource.
func requestingContainer(spec *corev1.PodSpec, path *field.Path, name corev1.ResourceName) *field.Path {
	does := func(c corev1.Container) bool {
		_, requests := c.Resources.Requests[name]
		_, limits := c.Resources.Limits[name]
		return requests || limits
	}
	if i := slices.IndexFunc(spec.InitContainers, does); i >= 0 {
		return path.Child("initContainers").Index(i)
	}
	return path.Child("containers").Index(slices.IndexFunc(spec.Containers, does))
}

// extendedResourceClass is the class that serves an extended resource, "" if none does: of several
// the one created last, as in kube-scheduler.
func (b *Counter) extendedResourceClass(name corev1.ResourceName) string {
	if !isExtended(name) {
		return ""
	}
	if b.classOfExtended == nil {
		b.classOfExtended = map[corev1.ResourceName]string{}
		for _, key := range slices.Sorted(maps.Keys(b.classes)) {
			class := b.classes[key]
			b.classOfExtended[corev1.ResourceName(resourceapi.ResourceDeviceClassPrefix+key)] = key
			if class.Spec.ExtendedResourceName == nil {
				continue
			}
			resource := corev1.ResourceName(*class.Spec.ExtendedResourceName)
			if other, twice := b.classOfExtended[resource]; !twice || b.classes[other].CreationTimestamp.Before(&class.CreationTimestamp) {
				b.classOfExtended[resource] = key
			}
		}
	}
	return b.classOfExtended[name]
}
