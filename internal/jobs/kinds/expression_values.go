package kinds

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// plainMap converts a map that an expression returns to plain JSON types.
func plainMap(value ref.Val) (map[string]any, error) {
	plain, ok := plainValue(value).(map[string]any)
	if !ok {
		return nil, errors.New("the expression does not make an object")
	}
	return plain, nil
}

// plainValue converts a CEL value to plain JSON types.
func plainValue(value ref.Val) any {
	switch v := value.(type) {
	case traits.Mapper:
		out := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			out[fmt.Sprint(key.Value())] = plainValue(v.Get(key))
		}
		return out
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			out = append(out, plainValue(it.Next()))
		}
		return out
	}
	return value.Value()
}

func containers(value ref.Val) ([]corev1.Container, error) {
	list, ok := plainValue(value).([]any)
	if !ok {
		return nil, errors.New("the expression does not make a list of containers")
	}
	var out []corev1.Container
	for _, element := range list {
		fields, ok := element.(map[string]any)
		if !ok {
			return nil, errors.New("the expression makes a list, but not of containers")
		}
		var container corev1.Container
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &container); err != nil {
			return nil, err
		}
		out = append(out, container)
	}
	return out, nil
}
