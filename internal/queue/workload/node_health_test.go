package workload_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func TestNodeHealth(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node := func(how ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		for _, f := range how {
			f(n)
		}
		return n
	}
	unknown := func(n *corev1.Node) { n.Status.Conditions = nil }
	notReady := func(since time.Duration) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-since))}}
		}
	}
	tainted := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "true", Effect: effect})
		}
	}
	forever := []corev1.Toleration{{Key: "ours", Operator: corev1.TolerationOpExists}}
	aWhile := []corev1.Toleration{{Key: "ours", Operator: corev1.TolerationOpExists, TolerationSeconds: ptr.To[int64](60)}}
	atOnce, fixed, untainted := workload.NodeRules{AtOnce: true}, workload.NodeRules{AfterNotReady: true}, workload.NodeRules{IgnoreTaints: true}
	for name, test := range map[string]struct {
		rules       workload.NodeRules
		node        *corev1.Node
		tolerations [][]corev1.Toleration
		want        workload.NodeHealth
		again       time.Duration // zero: never
	}{
		"well":                                   {node: node(), want: workload.NodeHealthy},
		"gone":                                   {want: workload.NodeLost},
		"nothing is known of its readiness":      {node: node(unknown), want: workload.NodeLost},
		"not ready":                              {node: node(notReady(time.Second)), want: workload.NodeLeaving},
		"not ready for long":                     {node: node(notReady(time.Hour)), want: workload.NodeLeaving},
		"not ready, at once":                     {rules: atOnce, node: node(notReady(10 * time.Second)), want: workload.NodeHealthy, again: 20 * time.Second},
		"not ready for long, at once":            {rules: atOnce, node: node(notReady(30 * time.Second)), want: workload.NodeLost},
		"not ready, with a limit":                {rules: fixed, node: node(notReady(10 * time.Second)), want: workload.NodeLeaving, again: 20 * time.Second},
		"not ready for long, with a limit":       {rules: fixed, node: node(notReady(31 * time.Second)), want: workload.NodeLost},
		"tainted":                                {node: node(tainted("x", "NoSchedule")), want: workload.NodeLeaving},
		"tainted, at once":                       {rules: atOnce, node: node(tainted("x", "NoExecute")), want: workload.NodeLost},
		"tainted, and taints do not count":       {rules: untainted, node: node(tainted("x", "NoExecute")), want: workload.NodeHealthy},
		"cordoned":                               {node: node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), want: workload.NodeLeaving},
		"a wish to go elsewhere":                 {node: node(tainted("x", "PreferNoSchedule")), want: workload.NodeHealthy},
		"tolerated":                              {node: node(tainted("ours", "NoExecute")), tolerations: [][]corev1.Toleration{forever}, want: workload.NodeHealthy},
		"tolerated for a while":                  {node: node(tainted("ours", "NoExecute")), tolerations: [][]corev1.Toleration{aWhile}, want: workload.NodeLeaving},
		"tolerated for a while, at once":         {rules: atOnce, node: node(tainted("ours", "NoExecute")), tolerations: [][]corev1.Toleration{aWhile}, want: workload.NodeLeaving},
		"tolerated by one pod set of two":        {node: node(tainted("ours", "NoExecute")), tolerations: [][]corev1.Toleration{forever, nil}, want: workload.NodeLeaving},
		"one taint of two is tolerated":          {node: node(tainted("ours", "NoExecute"), tainted("x", "NoSchedule")), tolerations: [][]corev1.Toleration{forever}, want: workload.NodeLeaving},
		"one taint of two is tolerated, at once": {rules: atOnce, node: node(tainted("ours", "NoExecute"), tainted("x", "NoSchedule")), tolerations: [][]corev1.Toleration{forever}, want: workload.NodeLost},
	} {
		t.Run(name, func(t *testing.T) {
			if test.tolerations == nil {
				test.tolerations = [][]corev1.Toleration{nil}
			}
			health, again := test.rules.Health(test.node, test.tolerations, now)
			if health != test.want {
				t.Errorf("health %d, want %d", health, test.want)
			}
			if want := now.Add(test.again); test.again == 0 && !again.IsZero() || test.again != 0 && !again.Equal(want) {
				t.Errorf("looked at again at %s", again)
			}
		})
	}
}
