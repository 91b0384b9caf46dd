package clouds

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// wanting is a NodeClaim that was made a minute ago, with conditions that came true then.
func wanting(kindOf, zone string, conditions ...string) *nodeClaim {
	c := &nodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "n", Finalizers: []string{termination}, CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))}}
	c.Spec.Requirements = []requirement{
		{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{kindOf}},
		{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}},
	}
	c.Spec.ExpireAfter = "1h"
	for _, condition := range conditions {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, LastTransitionTime: c.CreationTimestamp})
	}
	return c
}

func TestNext(t *testing.T) {
	sells := &cloud{}
	sells.Spec.StartUp, sells.Spec.SoldOut, sells.Spec.Machines = "90s", []string{"empty"}, []machine{{Type: "large", Cards: 8, Model: "H100-80G"}}
	fast := &cloud{}
	fast.Spec.Machines = sells.Spec.Machines
	there := &corev1.Node{}
	there.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	with := func(c *nodeClaim, change func(*nodeClaim)) *nodeClaim { change(c); return c }
	deleted := func(c *nodeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }
	for name, test := range map[string]struct {
		claim *nodeClaim
		from  *cloud
		node  *corev1.Node
		want  step
	}{
		"new":                     {with(wanting("large", "a"), func(c *nodeClaim) { c.Finalizers = nil }), sells, nil, step{do: hold}},
		"held":                    {wanting("large", "a"), sells, nil, step{do: launch}},
		"sold out":                {wanting("large", "empty"), sells, nil, step{do: giveUp}},
		"not sold":                {wanting("larger", "a"), sells, nil, step{do: giveUp}},
		"no such cloud":           {wanting("large", "a"), nil, nil, step{do: giveUp}},
		"starting":                {wanting("large", "a", launched), sells, nil, step{do: nothing, again: 30 * time.Second}},
		"sold out since":          {wanting("large", "empty", launched), sells, nil, step{do: nothing, again: 30 * time.Second}},
		"started":                 {wanting("large", "a", launched), fast, nil, step{do: appear}},
		"node not ready":          {wanting("large", "a", launched), fast, &corev1.Node{}, step{do: nothing}},
		"node ready":              {wanting("large", "a", launched), fast, there, step{do: register}},
		"serves":                  {wanting("large", "a", launched, registered), sells, there, step{do: nothing, again: 59 * time.Minute}},
		"serves without an end":   {with(wanting("large", "a", launched, registered), func(c *nodeClaim) { c.Spec.ExpireAfter = "Never" }), sells, there, step{do: nothing}},
		"expired":                 {with(wanting("large", "a", launched, registered), func(c *nodeClaim) { c.Spec.ExpireAfter = "30s" }), sells, there, step{do: giveUp}},
		"taken away":              {wanting("large", "a", launched, registered), sells, nil, step{do: giveUp}},
		"deleted":                 {with(wanting("large", "a", launched, registered), deleted), sells, there, step{do: end}},
		"deleted, cloud gone":     {with(wanting("large", "a", launched, registered), deleted), nil, there, step{do: end}},
		"deleted before it came":  {with(wanting("large", "a", launched), deleted), sells, nil, step{do: release}},
		"deleted, others hold it": {with(with(wanting("large", "a"), deleted), func(c *nodeClaim) { c.Finalizers = []string{"other"} }), sells, nil, step{do: nothing}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := next(test.claim, test.from, test.node, now); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}
