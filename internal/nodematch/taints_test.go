package nodematch

import "testing"

func TestTolerated(t *testing.T) {
	taint := Taint{"gpu", "a100", NoSchedule}
	for _, c := range []struct {
		o    Toleration
		want bool
	}{
		{Toleration{Key: "gpu", Value: "a100"}, true},
		{Toleration{Key: "gpu", Operator: "Equal", Value: "a100", Effect: "NoSchedule"}, true},
		{Toleration{Key: "gpu", Value: "t4"}, false},
		{Toleration{Key: "gpu", Operator: "Exists"}, true},
		{Toleration{Operator: "Exists"}, true},
		{Toleration{Value: "a100"}, false},
		{Toleration{Key: "gpu", Operator: "Exists", Effect: "NoExecute"}, false},
		{Toleration{Key: "other", Operator: "Exists"}, false},
	} {
		if got := taint.ToleratedBy([]Toleration{c.o}); got != c.want {
			t.Errorf("%+v: %v", c.o, got)
		}
	}
}

func TestTaintBinds(t *testing.T) {
	for effect, want := range map[string]bool{NoSchedule: true, NoExecute: true, "PreferNoSchedule": false} {
		if got := (&Taint{Key: "gpu", Effect: effect}).Binds(); got != want {
			t.Errorf("%s: %v", effect, got)
		}
	}
}

func TestTaintString(t *testing.T) {
	for taint, want := range map[Taint]string{
		{"gpu", "a100", NoSchedule}: "{gpu: a100 NoSchedule}",
		{"gpu", "", NoExecute}:      "{gpu: NoExecute}",
	} {
		if got := taint.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
