package kinds

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/elastic-ai/elastic/api/jobs/v1alpha1"
)

// Compile makes a row from a description. Every mistake is reported with the field it is in.
func Compile(name string, spec v1alpha1.JobKindSpec) (*Kind, error) {
	return (&compiler{}).kind(name, spec)
}

func (c *compiler) kind(name string, spec v1alpha1.JobKindSpec) (*Kind, error) {
	k := &Kind{
		Name: name, Spec: spec, codec: codecs[name],
		GVK:           schema.GroupVersionKind{Group: spec.Group, Version: spec.Version, Kind: spec.Kind},
		suspend:       c.plainPath("suspend", spec.Suspend),
		clearOnStop:   c.paths("clearOnStop", spec.ClearOnStop),
		managedBy:     c.plainPath("managedBy", spec.ManagedBy),
		sync:          c.plainPaths("sync", spec.Sync),
		grows:         c.plainPaths("syncGrows", spec.SyncGrows),
		forward:       c.plainPaths("forward", spec.Forward),
		priorityClass: c.expr("priorityClass", spec.PriorityClass),
		skip:          c.expr("skip", spec.Skip),
		succeeded:     c.expr("succeeded", spec.Succeeded),
		failed:        c.expr("failed", spec.Failed),
		message:       c.expr("message", spec.Message),
		ready:         c.expr("ready", spec.Ready),
		active:        c.expr("active", spec.Active),
		onHold:        c.expr("onHold", spec.OnHold),
	}
	if by := spec.ScaledBy; by != nil {
		k.scaledBy = c.expr("scaledBy.name", by.Name)
		if !spec.Elastic || by.Kind == "" || by.Version == "" || by.Name == "" {
			c.fail("scaledBy", errors.New("needs version, kind and name, and a kind that is elastic"))
		}
	}
	for i, set := range spec.PodSets {
		k.podSets = append(k.podSets, c.podSet(fmt.Sprintf("podSets[%d]", i), set))
	}
	for i, v := range spec.Validations {
		at := fmt.Sprintf("validations[%d]", i)
		k.validations = append(k.validations, validationRow{c.expr(at+".rule", v.Rule), c.plainPath(at+".fieldPath", v.FieldPath), v.Message})
		if v.Rule == "" || v.FieldPath == "" || v.Message == "" {
			c.fail(at, errors.New("needs rule, fieldPath and message"))
		}
	}
	if pods := spec.Pods; pods != nil {
		k.labels, k.annotations = c.paths("pods.labels", pods.Labels), c.paths("pods.annotations", pods.Annotations)
		if g := pods.Group; g != nil {
			k.group = &groupRow{
				object: c.expr("pods.group.object", g.Object),
				key:    c.expr("pods.group.key", g.Key),
				podSet: c.expr("pods.group.podSet", g.PodSet),
				fixed:  c.plainPaths("pods.group.fixed", g.Fixed),
			}
		}
	}
	c.whole(k)
	return k, errors.Join(c.errs...)
}

// compiler collects mistakes with the names of the fields they are in.
type compiler struct {
	later bool // expressions are compiled when they are first used
	errs  []error
}

func (c *compiler) fail(field string, err error) {
	if err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", field, err))
	}
}

func (c *compiler) expr(field, source string) expr {
	if c.later {
		return compileLater(source)
	}
	e, err := compile(source)
	c.fail(field, err)
	return e
}

func (c *compiler) path(field, text string) FieldPath {
	p, err := parsePath(text)
	c.fail(field, err)
	return p
}

func (c *compiler) plainPath(field, text string) FieldPath {
	p := c.path(field, text)
	if !p.plain() {
		c.fail(field, fmt.Errorf("%q names many places; one is wanted here", text))
	}
	return p
}

func (c *compiler) paths(field string, texts []string) []FieldPath {
	var out []FieldPath
	for i, text := range texts {
		out = append(out, c.path(fmt.Sprintf("%s[%d]", field, i), text))
	}
	return out
}

func (c *compiler) plainPaths(field string, texts []string) []FieldPath {
	var out []FieldPath
	for i, text := range texts {
		out = append(out, c.plainPath(fmt.Sprintf("%s[%d]", field, i), text))
	}
	return out
}

func (c *compiler) podSet(field string, set v1alpha1.PodSet) podSetRow {
	row := podSetRow{
		PodSet:      set,
		each:        c.plainPath(field+".each", set.Each),
		nameFrom:    c.plainPath(field+".nameFrom", set.NameFrom),
		template:    c.plainPath(field+".template", set.Template),
		when:        c.expr(field+".when", set.When),
		pod:         c.expr(field+".pod", set.Pod),
		sidecars:    c.expr(field+".sidecars", set.Sidecars),
		count:       c.expr(field+".count", set.Count),
		minCount:    c.expr(field+".minCount", set.MinCount),
		reclaimable: c.expr(field+".reclaimable", set.Reclaimable),
		atLeast:     c.expr(field+".atLeast", set.AtLeast),
		indexOffset: c.expr(field+".podIndexOffset", set.PodIndexOffset),
	}
	for i, place := range set.SetCount {
		at := fmt.Sprintf("%s.setCount[%d]", field, i)
		row.setCount = append(row.setCount, setCountRow{c.plainPath(at+".path", place.Path), c.expr(at+".when", place.When)})
	}
	if group := set.SubGroup; group != nil {
		row.subGroups = c.expr(field+".subGroup.count", group.Count)
	}
	row.inject = templateInject(row.template)
	if in := set.Inject; in != nil {
		row.inject = injectPaths{
			labels:       c.plainPath(field+".inject.labels", in.Labels),
			annotations:  c.plainPath(field+".inject.annotations", in.Annotations),
			nodeSelector: c.plainPath(field+".inject.nodeSelector", in.NodeSelector),
			tolerations:  c.plainPath(field+".inject.tolerations", in.Tolerations),
			affinity:     c.plainPath(field+".inject.affinity", in.Affinity),
		}
		row.instead = c.paths(field+".inject.instead", in.Instead)
	}
	switch {
	case set.Template == "" && set.Pod == "":
		c.fail(field, errors.New("needs template, the path of the pod template, or pod, an expression for it"))
	case set.Template == "" && set.Inject == nil:
		c.fail(field, errors.New("needs inject, because there is no template to inject into"))
	case set.Name == "" && set.Each == "":
		c.fail(field, errors.New("needs a name"))
	}
	if set.MinCount != "" && len(set.SetCount) == 0 {
		c.fail(field+".minCount", errors.New("needs setCount, where the number of pods is written"))
	}
	return row
}

// within checks that paths lead into one top-level field of the object.
func (c *compiler) within(field string, paths []FieldPath, top, why string) {
	for i, p := range paths {
		if len(p) > 0 && p[0].name != top {
			c.fail(fmt.Sprintf("%s[%d]", field, i), fmt.Errorf("%q is not in the %s, %s", p, top, why))
		}
	}
}

// whole checks what involves several fields.
func (c *compiler) whole(k *Kind) {
	for field, value := range map[string]string{"version": k.Spec.Version, "kind": k.Spec.Kind, "resource": k.Spec.Resource} {
		if value == "" {
			c.fail(field, errors.New("is required"))
		}
	}
	c.within("sync", k.sync, "status", "which is all that comes back")
	c.within("syncGrows", k.grows, "status", "which is all that comes back")
	c.within("forward", k.forward, "spec", "which is all that is taken over")
	switch {
	case k.Suspends() && k.Spec.Pods != nil:
		c.fail("pods", errors.New("is for kinds without suspend"))
	case !k.Suspends() && k.Spec.Pods == nil:
		c.fail("suspend", errors.New("is required, or else pods, for a kind that is held by gating its pods"))
	case k.Suspends() && len(k.podSets) == 0 && k.codec == nil:
		c.fail("podSets", errors.New("at least one is required"))
	case k.Spec.Elastic && slices.ContainsFunc(k.podSets, func(set podSetRow) bool { return set.inject.gates == nil }):
		c.fail("elastic", errors.New("needs a template in every pod set, for the gate that holds additional pods"))
	case k.group != nil && len(k.podSets) == 0:
		c.fail("podSets", errors.New("at least one is required, to know what the group asks for"))
	}
}
