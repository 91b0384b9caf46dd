package kinds

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Check compares a row with the schema of the kind's CRD. Every path and every field that an
// expression reads must exist; the errors name those that do not.
func (k *Kind) Check(crd *apiextensionsv1.CustomResourceDefinition) error {
	c := &checker{crd: crd.Name + "/" + k.Spec.Version}
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == k.Spec.Version })
	if i < 0 {
		return fmt.Errorf("version: the CRD %s has no version %s", crd.Name, k.Spec.Version)
	}
	if names := crd.Spec.Names; names.Kind != k.Spec.Kind {
		return fmt.Errorf("kind: the CRD %s is for %s", crd.Name, names.Kind)
	}
	validation := crd.Spec.Versions[i].Schema
	if validation == nil || validation.OpenAPIV3Schema == nil {
		return nil
	}
	root := validation.OpenAPIV3Schema.DeepCopy()
	for _, field := range []string{"metadata", "apiVersion", "kind"} {
		delete(root.Properties, field)
		if root.Properties != nil {
			root.Properties[field] = apiextensionsv1.JSONSchemaProps{}
		}
	}
	c.vars = map[string]*apiextensionsv1.JSONSchemaProps{"object": root, "oldObject": root}
	c.row(k, root)
	return errors.Join(c.errs...)
}

// checker collects what a row names and the schema does not have. Nothing is known of a nil schema:
// any field may exist.
type checker struct {
	crd  string
	vars map[string]*apiextensionsv1.JSONSchemaProps
	errs []error
}

func (c *checker) row(k *Kind, root *apiextensionsv1.JSONSchemaProps) {
	c.path("suspend", root, k.suspend, "boolean")
	for i, p := range k.clearOnStop {
		c.path(fmt.Sprintf("clearOnStop[%d]", i), root, p, "")
	}
	c.path("managedBy", root, k.managedBy, "string")
	for i, p := range k.sync {
		c.path(fmt.Sprintf("sync[%d]", i), root, p, "")
	}
	for i, p := range k.grows {
		c.path(fmt.Sprintf("syncGrows[%d]", i), root, p, "integer")
	}
	for i, p := range k.forward {
		c.path(fmt.Sprintf("forward[%d]", i), root, p, "")
	}
	for i, p := range k.labels {
		c.path(fmt.Sprintf("pods.labels[%d]", i), root, p, "object")
	}
	for i, p := range k.annotations {
		c.path(fmt.Sprintf("pods.annotations[%d]", i), root, p, "object")
	}
	if k.group != nil {
		for i, p := range k.group.fixed {
			c.path(fmt.Sprintf("pods.group.fixed[%d]", i), root, p, "")
		}
	}
	for field, e := range map[string]expr{
		"priorityClass": k.priorityClass, "skip": k.skip, "succeeded": k.succeeded, "failed": k.failed,
		"message": k.message, "ready": k.ready, "active": k.active, "onHold": k.onHold, "scaledBy.name": k.scaledBy,
	} {
		c.expr(field, e)
	}
	for i, v := range k.validations {
		at := fmt.Sprintf("validations[%d]", i)
		c.path(at+".fieldPath", root, v.path, "")
		c.expr(at+".rule", v.rule)
	}
	for i := range k.podSets {
		c.podSet(fmt.Sprintf("podSets[%d]", i), root, &k.podSets[i])
	}
	slices.SortFunc(c.errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
}

func (c *checker) podSet(field string, root *apiextensionsv1.JSONSchemaProps, row *podSetRow) {
	item := root
	if row.each != nil {
		list := c.path(field+".each", root, row.each, "")
		var ok bool
		if item, ok = element(list); !ok {
			c.fail(field+".each", fmt.Sprintf("%s is neither a list nor a map", row.each))
		}
	}
	outer := c.vars
	c.vars = maps.Clone(outer)
	c.vars["item"] = item
	defer func() { c.vars = outer }()

	c.path(field+".nameFrom", item, row.nameFrom, "string")
	if row.Pod == "" {
		c.path(field+".template", item, row.template, "object")
	}
	if row.Inject != nil {
		c.path(field+".inject.labels", item, row.inject.labels, "object")
		c.path(field+".inject.annotations", item, row.inject.annotations, "object")
		c.path(field+".inject.nodeSelector", item, row.inject.nodeSelector, "object")
		c.path(field+".inject.tolerations", item, row.inject.tolerations, "array")
		c.path(field+".inject.affinity", item, row.inject.affinity, "object")
	}
	for i, place := range row.setCount {
		at := fmt.Sprintf("%s.setCount[%d]", field, i)
		c.path(at+".path", item, place.path, "integer")
		c.expr(at+".when", place.when)
	}
	for name, e := range map[string]expr{
		"when": row.when, "pod": row.pod, "sidecars": row.sidecars, "count": row.count,
		"minCount": row.minCount, "reclaimable": row.reclaimable, "subGroup.count": row.subGroups,
		"atLeast": row.atLeast, "podIndexOffset": row.indexOffset,
	} {
		c.expr(field+"."+name, e)
	}
}

func (c *checker) fail(field, problem string) {
	c.errs = append(c.errs, fmt.Errorf("%s: %s", field, problem))
}

// path follows a path through the schema and checks the type at its end.
func (c *checker) path(field string, at *apiextensionsv1.JSONSchemaProps, p FieldPath, want string) *apiextensionsv1.JSONSchemaProps {
	for i, s := range p {
		next, ok := child(at, s.name)
		if !ok {
			c.fail(field, c.missing(at, p[:i+1].String(), s.name))
			return nil
		}
		if s.each {
			if next, ok = element(next); !ok {
				c.fail(field, fmt.Sprintf("%s is not a list in %s", p[:i+1], c.crd))
				return nil
			}
		}
		at = next
	}
	if at != nil && want != "" && at.Type != "" && at.Type != want && len(p) > 0 {
		c.fail(field, fmt.Sprintf("%s is of type %s in %s, not %s", p, at.Type, c.crd, want))
	}
	return at
}

func (c *checker) missing(at *apiextensionsv1.JSONSchemaProps, whole, name string) string {
	text := fmt.Sprintf("%s has no field %s", c.crd, whole)
	for _, candidate := range slices.Sorted(maps.Keys(at.Properties)) {
		if strings.EqualFold(candidate, name) || oneApart(candidate, name) {
			return text + fmt.Sprintf("; did you mean %q?", candidate)
		}
	}
	return text
}

// oneApart: two names differ by one letter added, left out, changed, or swapped with its neighbour.
func oneApart(a, b string) bool {
	if len(a) < len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(b) && a[i] == b[i] {
		i++
	}
	switch {
	case len(a) == len(b)+1:
		return a[i+1:] == b[i:]
	case len(a) != len(b) || i == len(a):
		return false
	case a[i+1:] == b[i+1:]:
		return true
	}
	return i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}

func child(at *apiextensionsv1.JSONSchemaProps, name string) (*apiextensionsv1.JSONSchemaProps, bool) {
	if at == nil {
		return nil, true
	}
	if property, found := at.Properties[name]; found {
		return &property, true
	}
	if more := at.AdditionalProperties; more != nil {
		return more.Schema, more.Allows || more.Schema != nil
	}
	open := at.XPreserveUnknownFields != nil && *at.XPreserveUnknownFields || at.XEmbeddedResource || at.Type == "" && len(at.Properties) == 0
	return nil, open
}

// element is the schema of a list's or a map's elements.
func element(at *apiextensionsv1.JSONSchemaProps) (*apiextensionsv1.JSONSchemaProps, bool) {
	switch {
	case at == nil:
		return nil, true
	case at.Items != nil:
		return at.Items.Schema, true
	case at.AdditionalProperties != nil:
		return at.AdditionalProperties.Schema, true
	}
	_, open := child(at, "")
	return nil, open
}

// expr checks the fields that an expression reads, as far as their schema is known.
func (c *checker) expr(field string, e expr) {
	if e.isAbsent() {
		return
	}
	env, err := baseEnv()
	if err != nil {
		c.fail(field, err.Error())
		return
	}
	compiled, issues := env.Compile(e.source)
	if issues.Err() != nil {
		c.fail(field, issues.Err().Error())
		return
	}
	c.follow(field, compiled.NativeRep().Expr())
}

// known is what is known of an expression's value: the fields that led to it, and its schema.
type known struct {
	name   string
	schema *apiextensionsv1.JSONSchemaProps
}

// follow walks an expression and returns what is known of its value.
func (c *checker) follow(field string, e ast.Expr) known {
	switch e.Kind() {
	case ast.IdentKind:
		return known{e.AsIdent(), c.vars[e.AsIdent()]}
	case ast.SelectKind:
		return c.read(field, c.follow(field, e.AsSelect().Operand()), e.AsSelect().FieldName())
	case ast.CallKind:
		return c.call(field, e.AsCall())
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			c.follow(field, element)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			c.follow(field, entry.AsMapEntry().Key())
			c.follow(field, entry.AsMapEntry().Value())
		}
	case ast.ComprehensionKind:
		return c.comprehension(field, e.AsComprehension())
	}
	return known{}
}

func (c *checker) read(field string, of known, name string) known {
	next, ok := child(of.schema, name)
	if !ok {
		c.fail(field, c.missing(of.schema, strings.TrimPrefix(strings.TrimPrefix(of.name+"."+name, "oldObject."), "object."), name))
	}
	return known{of.name + "." + name, next}
}

func (c *checker) call(field string, call ast.CallExpr) known {
	var target known
	if call.IsMemberFunction() {
		target = c.follow(field, call.Target())
	}
	args := call.Args()
	switch call.FunctionName() {
	case operators.OptSelect:
		if name, ok := args[1].AsLiteral().Value().(string); ok {
			return c.read(field, c.follow(field, args[0]), name)
		}
	case operators.Index, operators.OptIndex:
		of := c.follow(field, args[0])
		c.follow(field, args[1])
		next, _ := element(of.schema)
		return known{of.name + "[...]", next}
	case "orValue":
		c.follow(field, args[0])
		return target
	}
	for _, arg := range args {
		c.follow(field, arg)
	}
	return known{}
}

// comprehension is what exists(), map(), filter() and all() become.
func (c *checker) comprehension(field string, loop ast.ComprehensionExpr) known {
	over := c.follow(field, loop.IterRange())
	outer := c.vars
	c.vars = maps.Clone(outer)
	defer func() { c.vars = outer }()
	c.vars[loop.IterVar()], c.vars[loop.AccuVar()] = nil, nil
	if over.schema != nil && over.schema.Items != nil { // a loop over a map iterates its keys
		c.vars[loop.IterVar()] = over.schema.Items.Schema
	}
	for _, part := range []ast.Expr{loop.AccuInit(), loop.LoopCondition(), loop.LoopStep(), loop.Result()} {
		c.follow(field, part)
	}
	return known{}
}
