package kinds

import (
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/api/resource"
)

// expr is an expression; the zero value is an absent one. It is compiled once, at the latest when
// it is first used.
type expr struct {
	source  string
	program func() (cel.Program, error)
}

// variables of all expressions; which of them are set depends on the field. What goes beyond Kueue is for built-in rows.
var variables = []string{"object", "item", "key", "pods", "pod", "owner", "oldObject", "beyond"}

// baseEnv declares every variable with a dynamic type: the fields of a job are checked against its
// CRD (crd_check.go), not again at every evaluation.
var baseEnv = sync.OnceValues(func() (*cel.Env, error) {
	options := functions()
	for _, name := range variables {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	return cel.NewEnv(options...)
})

func functions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.OptionalTypes(),
		ext.Math(),
		ext.Strings(),
		cel.Function("sum", cel.Overload("sum_list", []*cel.Type{cel.ListType(cel.DynType)}, cel.IntType, cel.UnaryBinding(sum))),
		cel.Function("condition", cel.Overload("condition_object_string", []*cel.Type{cel.DynType, cel.StringType}, cel.BoolType,
			cel.BinaryBinding(func(object, name ref.Val) ref.Val {
				_, found := trueCondition(object, name)
				return types.Bool(found)
			}))),
		cel.Function("conditionMessage", cel.Overload("conditionMessage_object_string", []*cel.Type{cel.DynType, cel.StringType}, cel.StringType,
			cel.BinaryBinding(func(object, name ref.Val) ref.Val {
				condition, _ := trueCondition(object, name)
				message, _ := condition["message"].(string)
				return types.String(message)
			}))),
		cel.Function("indexes", cel.Overload("indexes_string_string_int", []*cel.Type{cel.StringType, cel.StringType, cel.IntType}, cel.IntType,
			cel.FunctionBinding(func(args ...ref.Val) ref.Val {
				below, _ := args[2].Value().(int64)
				return types.Int(countIndexes(below, fmt.Sprint(args[0].Value()), fmt.Sprint(args[1].Value())))
			}))),
		cel.Function("sparkMemory", cel.Overload("sparkMemory_string_string_string",
			[]*cel.Type{cel.StringType, cel.StringType, cel.StringType}, cel.StringType,
			cel.FunctionBinding(func(args ...ref.Val) ref.Val {
				bytes, err := sparkMemory(fmt.Sprint(args[0].Value()), fmt.Sprint(args[1].Value()), fmt.Sprint(args[2].Value()))
				if err != nil {
					return types.WrapErr(err)
				}
				return types.String(resource.NewQuantity(bytes, resource.BinarySI).String())
			}))),
	}
}

func sum(list ref.Val) ref.Val {
	var total types.Int
	for it := list.(traits.Lister).Iterator(); it.HasNext() == types.True; {
		n, ok := it.Next().(types.Int)
		if !ok {
			return types.NewErr("sum: an element is not a whole number")
		}
		total += n
	}
	return total
}

// trueCondition finds a condition whose status is True in status.conditions.
func trueCondition(object, name ref.Val) (map[string]any, bool) {
	root, _ := object.Value().(map[string]any)
	status, _ := root["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if ok && condition["type"] == name.Value() && condition["status"] == "True" {
			return condition, true
		}
	}
	return nil, false
}

// compile compiles an expression; an empty one is absent.
func compile(source string) (expr, error) {
	e := compileLater(source)
	if e.isAbsent() {
		return e, nil
	}
	if _, err := e.program(); err != nil {
		return expr{}, err
	}
	return e, nil
}

// compileLater is an expression that is compiled when it is first used.
func compileLater(source string) expr {
	if source == "" {
		return expr{}
	}
	return expr{source, sync.OnceValues(func() (cel.Program, error) {
		env, err := baseEnv()
		if err != nil {
			return nil, err
		}
		ast, issues := env.Compile(source)
		if issues.Err() != nil {
			return nil, expressionError(source, issues)
		}
		return env.Program(ast, cel.CostLimit(costLimit))
	})}
}

// costLimit is what the API server allows one expression of a CRD per call.
const costLimit = 1_000_000

func expressionError(source string, issues *cel.Issues) error {
	first := issues.Errors()[0]
	message, _, _ := strings.Cut(first.Message, "\n")
	return fmt.Errorf("%s (at character %d of %q)", message, first.Location.Column()+1, source)
}

func (e expr) isAbsent() bool { return e.program == nil }

// value evaluates the expression. A missing field is no error: the second result is false, and the
// caller uses its default.
func (e expr) value(vars map[string]any) (ref.Val, bool, error) {
	if e.isAbsent() {
		return nil, false, nil
	}
	program, err := e.program()
	if err != nil {
		return nil, false, err
	}
	value, _, err := program.Eval(vars)
	if err != nil {
		if message := err.Error(); strings.HasPrefix(message, "no such key") || strings.HasPrefix(message, "index out of bounds") {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("%q: %w", e.source, err)
	}
	return value, true, nil
}

func (e expr) boolean(vars map[string]any, otherwise bool) (bool, error) {
	value, found, err := e.value(vars)
	if err != nil || !found {
		return otherwise, err
	}
	b, ok := value.Value().(bool)
	if !ok {
		return otherwise, fmt.Errorf("%q is not true or false but %v", e.source, value.Value())
	}
	return b, nil
}

func (e expr) number(vars map[string]any, otherwise int64) (int64, error) {
	value, found, err := e.value(vars)
	if err != nil || !found {
		return otherwise, err
	}
	n, ok := value.Value().(int64)
	if !ok {
		return otherwise, fmt.Errorf("%q is not a whole number but %v", e.source, value.Value())
	}
	return n, nil
}

func (e expr) text(vars map[string]any) (string, error) {
	value, found, err := e.value(vars)
	if err != nil || !found {
		return "", err
	}
	s, ok := value.Value().(string)
	if !ok {
		return "", fmt.Errorf("%q is not a text but %v", e.source, value.Value())
	}
	return s, nil
}
