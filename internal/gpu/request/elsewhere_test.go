package request

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestElsewhere(t *testing.T) {
	of := map[string][]string{"workers": {"a/b", "c/d"}, "head": {"a/b"}}
	text := FormatElsewhere(of)
	if want := "head=a/b workers=a/b,c/d"; text != want {
		t.Errorf("it is written as %q, want %q", text, want)
	}
	condition := metav1.Condition{Type: ElsewhereCondition, Status: metav1.ConditionTrue, Message: text}
	if got := Elsewhere([]metav1.Condition{{Type: "Other", Status: metav1.ConditionTrue, Message: "x=y"}, condition}); !reflect.DeepEqual(got, of) {
		t.Errorf("it is read as %v", got)
	}
	condition.Message = "head a=b,"
	if got := Elsewhere([]metav1.Condition{condition}); !reflect.DeepEqual(got, map[string][]string{"a": {"b", ""}}) {
		t.Errorf("what others wrote is read as %v", got)
	}
	condition.Status = metav1.ConditionFalse
	if got := Elsewhere([]metav1.Condition{condition}); got != nil {
		t.Errorf("what is not so is read as %v", got)
	}
}
