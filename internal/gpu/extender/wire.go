package extender

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The messages are those of k8s.io/kube-scheduler/extender/v1, whose fields have no tags.

type filterArgs struct {
	Pod       *corev1.Pod
	Nodes     *corev1.NodeList
	NodeNames *[]string
}

type filterResult struct {
	Nodes                      *corev1.NodeList `json:",omitempty"`
	NodeNames                  *[]string
	FailedNodes                map[string]string `json:",omitempty"`
	FailedAndUnresolvableNodes map[string]string `json:",omitempty"`
	Error                      string            `json:",omitempty"`
}

type hostPriority struct {
	Host  string
	Score int64
}

type bindArgs struct {
	PodName, PodNamespace string
	PodUID                types.UID
	Node                  string
}

type bindResult struct{ Error string }

type metaPod struct{ UID types.UID }

type metaVictims struct {
	Pods             []*metaPod
	NumPDBViolations int64
}

type preemptArgs struct {
	Pod                   *corev1.Pod
	NodeNameToVictims     map[string]*victims
	NodeNameToMetaVictims map[string]*metaVictims
}

type victims struct {
	Pods             []*corev1.Pod
	NumPDBViolations int64
}

type preemptResult struct {
	NodeNameToMetaVictims map[string]*metaVictims
}

// names of the nodes in question.
func (a *filterArgs) names() []string {
	if a.NodeNames != nil {
		return *a.NodeNames
	}
	if a.Nodes == nil {
		return nil
	}
	names := make([]string, len(a.Nodes.Items))
	for i := range a.Nodes.Items {
		names[i] = a.Nodes.Items[i].Name
	}
	return names
}

// meta victims, whichever form the request has.
func (a *preemptArgs) meta() map[string]*metaVictims {
	if a.NodeNameToMetaVictims != nil {
		return a.NodeNameToMetaVictims
	}
	out := map[string]*metaVictims{}
	for node, v := range a.NodeNameToVictims {
		m := &metaVictims{NumPDBViolations: v.NumPDBViolations}
		for _, pod := range v.Pods {
			m.Pods = append(m.Pods, &metaPod{UID: pod.UID})
		}
		out[node] = m
	}
	return out
}
