package workload

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PodResources knows what a cluster makes of a pod's requests when the pod is created: the defaults and
// bounds of its namespace's LimitRanges, and the overhead of its RuntimeClass. Quota counts the pods as
// they will be.
type PodResources struct {
	ranges   map[string]map[string]*corev1.LimitRange // by namespace and name
	limits   map[string]map[corev1.LimitType]corev1.LimitRangeItem
	overhead map[string]corev1.ResourceList // by RuntimeClass
}

func NewPodResources() *PodResources {
	return &PodResources{
		ranges: map[string]map[string]*corev1.LimitRange{}, limits: map[string]map[corev1.LimitType]corev1.LimitRangeItem{},
		overhead: map[string]corev1.ResourceList{},
	}
}

// Set takes in a LimitRange or a RuntimeClass, and says which workloads it concerns; nil for any other
// object.
func (r *PodResources) Set(obj client.Object, deleted bool) func(*kueue.Workload) bool {
	switch o := obj.(type) {
	case *corev1.LimitRange:
		of := r.ranges[o.Namespace]
		if of == nil {
			of = map[string]*corev1.LimitRange{}
			r.ranges[o.Namespace] = of
		}
		if of[o.Name] = o; deleted {
			delete(of, o.Name)
		}
		if r.limits[o.Namespace] = summarize(of); len(of) == 0 {
			delete(r.ranges, o.Namespace)
			delete(r.limits, o.Namespace)
		}
		return func(wl *kueue.Workload) bool { return wl.Namespace == o.Namespace }
	case *nodev1.RuntimeClass:
		delete(r.overhead, o.Name)
		if o.Overhead != nil && !deleted {
			r.overhead[o.Name] = o.Overhead.PodFixed
		}
		return func(wl *kueue.Workload) bool {
			return slices.ContainsFunc(wl.Spec.PodSets, func(set kueue.PodSet) bool {
				return set.Template.Spec.RuntimeClassName != nil && *set.Template.Spec.RuntimeClassName == o.Name
			})
		}
	}
	return nil
}

// summarize joins the LimitRanges of a namespace: the tightest bounds, and of the defaults the first by
// name.
func summarize(ranges map[string]*corev1.LimitRange) map[corev1.LimitType]corev1.LimitRangeItem {
	all := map[corev1.LimitType]corev1.LimitRangeItem{}
	for _, name := range slices.Sorted(maps.Keys(ranges)) {
		for _, item := range ranges[name].Spec.Limits {
			if item.Type != corev1.LimitTypeContainer && item.Type != corev1.LimitTypePod {
				continue
			}
			sum := all[item.Type]
			sum.Max = merge(sum.Max, item.Max, func(had, has resource.Quantity) bool { return has.Cmp(had) < 0 })
			sum.Min = merge(sum.Min, item.Min, func(had, has resource.Quantity) bool { return has.Cmp(had) > 0 })
			sum.Default = missing(sum.Default, item.Default)
			sum.DefaultRequest = missing(sum.DefaultRequest, item.DefaultRequest)
			all[item.Type] = sum
		}
	}
	return all
}

// merge takes the values of more that are missing in list, or better; list itself is left as it is.
func merge(list, more corev1.ResourceList, better func(had, has resource.Quantity) bool) corev1.ResourceList {
	var changed corev1.ResourceList
	for name, has := range more {
		if had, found := list[name]; found && !better(had, has) {
			continue
		}
		if changed == nil {
			changed = make(corev1.ResourceList, len(list)+len(more))
			maps.Copy(changed, list)
		}
		changed[name] = has
	}
	if changed == nil {
		return list
	}
	return changed
}

// missing adds the values of more that list does not have.
func missing(list, more corev1.ResourceList) corev1.ResourceList {
	return merge(list, more, func(resource.Quantity, resource.Quantity) bool { return false })
}

// Apply is the workload with its pods as they will be; the same one where nothing is added.
func (r *PodResources) Apply(wl *kueue.Workload) *kueue.Workload {
	if len(r.limits[wl.Namespace]) == 0 && !slices.ContainsFunc(wl.Spec.PodSets, func(set kueue.PodSet) bool { return r.addsOverhead(&set.Template.Spec) }) {
		return wl
	}
	out := *wl
	out.Spec.PodSets = slices.Clone(wl.Spec.PodSets)
	for i := range out.Spec.PodSets {
		spec := &out.Spec.PodSets[i].Template.Spec
		if r.addsOverhead(spec) {
			spec.Overhead = r.overhead[*spec.RuntimeClassName]
		}
		r.setDefaults(wl.Namespace, spec)
	}
	return &out
}

func (r *PodResources) addsOverhead(spec *corev1.PodSpec) bool {
	return spec.RuntimeClassName != nil && len(spec.Overhead) == 0 && len(r.overhead[*spec.RuntimeClassName]) > 0
}

// setDefaults replaces what it changes, and leaves the given containers as they are.
func (r *PodResources) setDefaults(namespace string, spec *corev1.PodSpec) {
	add := func(to *corev1.ResourceRequirements, from corev1.LimitRangeItem) {
		to.Limits, to.Requests = missing(to.Limits, from.Default), missing(to.Requests, from.DefaultRequest)
	}
	if limits, found := r.limits[namespace][corev1.LimitTypeContainer]; found {
		for _, containers := range []*[]corev1.Container{&spec.InitContainers, &spec.Containers} {
			*containers = slices.Clone(*containers)
			for i := range *containers {
				add(&(*containers)[i].Resources, limits)
			}
		}
	}
	if limits, found := r.limits[namespace][corev1.LimitTypePod]; found && spec.Resources != nil {
		pod := *spec.Resources
		add(&pod, limits)
		spec.Resources = &pod
	}
}

// Refusal says why no pod of a workload, as Apply returns it, could be created; "" if they can. The
// messages are Kueue's.
func (r *PodResources) Refusal(wl *kueue.Workload) string {
	path := field.NewPath("spec", "podSets")
	var over, outside, uncounted field.ErrorList
	for i := range wl.Spec.PodSets {
		set, at := &wl.Spec.PodSets[i], path.Index(i).Child("template", "spec")
		spec := set.Template.Spec // a copy, whose containers are replaced
		DefaultRequests(&spec)
		over = append(over, validateRequests(&spec, at)...)
		outside = append(outside, r.validateBounds(wl.Namespace, &spec, at)...)
		if len(r.limits[wl.Namespace]) > 0 || spec.RuntimeClassName != nil { // what the workload itself says is validated as it is written
			uncounted = append(uncounted, ValidateCount(set, path.Index(i))...)
		}
	}
	switch {
	case len(over) > 0:
		return "resources validation failed: " + over.ToAggregate().Error()
	case len(outside) > 0:
		return "resources didn't satisfy LimitRange constraints: " + outside.ToAggregate().Error()
	case len(uncounted) > 0:
		return "resources validation failed: " + uncounted.ToAggregate().Error()
	}
	return ""
}

// eachContainer calls f with all containers of a pod and their paths.
func eachContainer(spec *corev1.PodSpec, path *field.Path, f func(*corev1.ResourceRequirements, *field.Path)) {
	for i := range spec.InitContainers {
		f(&spec.InitContainers[i].Resources, path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		f(&spec.Containers[i].Resources, path.Child("containers").Index(i))
	}
}

func validateRequests(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(r *corev1.ResourceRequirements, at *field.Path) {
		if names := greater(r.Requests, r.Limits); len(names) > 0 {
			errs = append(errs, field.Invalid(at, names, "requests must not exceed its limits"))
		}
	}
	eachContainer(spec, path, check)
	if spec.Resources != nil {
		check(spec.Resources, path.Child("resources"))
	}
	return errs
}

func (r *PodResources) validateBounds(namespace string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(least, most corev1.ResourceList, limits corev1.LimitRangeItem, at *field.Path) {
		if names := greater(most, limits.Max); len(names) > 0 {
			errs = append(errs, field.Invalid(at, names, "requests must not be above the limitRange max"))
		}
		if names := greater(limits.Min, least); len(names) > 0 {
			errs = append(errs, field.Invalid(at, names, "requests must not be below the limitRange min"))
		}
	}
	if limits, found := r.limits[namespace][corev1.LimitTypeContainer]; found {
		eachContainer(spec, path, func(r *corev1.ResourceRequirements, at *field.Path) {
			least := merge(r.Requests, r.Limits, func(had, has resource.Quantity) bool { return has.Cmp(had) < 0 })
			most := merge(r.Requests, r.Limits, func(had, has resource.Quantity) bool { return has.Cmp(had) > 0 })
			check(least, most, limits, at)
		})
	}
	if limits, found := r.limits[namespace][corev1.LimitTypePod]; found {
		total := PodRequests(spec)
		check(total, total, limits, path)
	}
	return errs
}

// greater are the resources of which list has more than other, sorted; those that one of them lacks are
// not compared.
func greater(list, other corev1.ResourceList) []corev1.ResourceName {
	var names []corev1.ResourceName
	for name, q := range list {
		if limit, found := other[name]; found && q.Cmp(limit) > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b corev1.ResourceName) int { return cmp.Compare(a, b) })
	return names
}
