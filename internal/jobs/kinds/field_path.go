package kinds

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FieldPath is a place in an object: field names from its root.
type FieldPath []segment

// segment is one field name. With each it stands for every element of the list there; where an
// optional field is absent, the path is ignored. A key is that of a map, and may contain anything.
type segment struct {
	name                string
	each, optional, key bool
}

var fieldName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

// parsePath reads a path as a JobKind writes it.
func parsePath(text string) (FieldPath, error) {
	if text == "" {
		return nil, nil
	}
	var p FieldPath
	fields, key := text, ""
	if at := strings.Index(text, "["); at > 0 && strings.HasSuffix(text, "]") && !strings.Contains(text, "[*]") {
		fields, key = text[:at], text[at+1:len(text)-1]
	}
	for part := range strings.SplitSeq(fields, ".") {
		s := segment{name: part}
		s.name, s.optional = strings.CutSuffix(s.name, "?")
		s.name, s.each = strings.CutSuffix(s.name, "[*]")
		if !fieldName.MatchString(s.name) {
			return nil, fmt.Errorf("%q is not a path: %q is not a field name", text, part)
		}
		p = append(p, s)
	}
	if key != "" {
		p = append(p, segment{name: key, key: true})
	}
	return p, nil
}

// plain: the path names exactly one place.
func (p FieldPath) plain() bool {
	for _, s := range p {
		if s.each {
			return false
		}
	}
	return true
}

func (p FieldPath) String() string {
	var text strings.Builder
	for i, s := range p {
		if s.key {
			text.WriteString("[" + s.name + "]")
			continue
		}
		if i > 0 {
			text.WriteString(".")
		}
		text.WriteString(s.name)
		if s.each {
			text.WriteString("[*]")
		}
		if s.optional {
			text.WriteString("?")
		}
	}
	return text.String()
}

func (p FieldPath) fields() []string {
	names := make([]string, len(p))
	for i, s := range p {
		names[i] = s.name
	}
	return names
}

// Get reads the value at a plain path.
func (p FieldPath) Get(root map[string]any) (any, bool) {
	value, found, err := unstructured.NestedFieldNoCopy(root, p.fields()...)
	return value, found && err == nil && value != nil
}

// Set writes a value at every place the path stands for. Missing fields on the way are created,
// list elements are not.
func (p FieldPath) Set(root map[string]any, value any) error {
	return p.update(root, func(parent map[string]any, name string) error {
		parent[name] = value
		return nil
	})
}

// Remove deletes the field. It creates no fields on the way.
func (p FieldPath) Remove(root map[string]any) {
	if value, found := p[:len(p)-1].parent(root); found {
		delete(value, p[len(p)-1].name)
	}
}

func (p FieldPath) parent(root map[string]any) (map[string]any, bool) {
	if len(p) == 0 {
		return root, true
	}
	value, found := p.Get(root)
	fields, ok := value.(map[string]any)
	return fields, found && ok
}

// update calls change with the map that contains the last field.
func (p FieldPath) update(at map[string]any, change func(parent map[string]any, name string) error) error {
	s := p[0]
	if s.optional {
		if value, found := at[s.name]; !found || value == nil {
			return nil
		}
	}
	if len(p) == 1 {
		return change(at, s.name)
	}
	if s.each {
		elements, ok := at[s.name].([]any)
		if !ok {
			return nil
		}
		for i, element := range elements {
			fields, ok := element.(map[string]any)
			if !ok {
				return fmt.Errorf("element %d of %s is not an object", i, s.name)
			}
			if err := p[1:].update(fields, change); err != nil {
				return err
			}
		}
		return nil
	}
	if at[s.name] == nil {
		at[s.name] = map[string]any{}
	}
	fields, ok := at[s.name].(map[string]any)
	if !ok {
		return fmt.Errorf("%s is not an object", s.name)
	}
	return p[1:].update(fields, change)
}

// setKey writes a key, which may contain dots, of the map at a path.
func (p FieldPath) setKey(root map[string]any, key, value string) error {
	return append(p[:len(p):len(p)], segment{name: key}).Set(root, value)
}

func nested(root map[string]any, fields []string) (any, bool) {
	value, found, err := unstructured.NestedFieldNoCopy(root, fields...)
	return value, found && err == nil && value != nil
}
