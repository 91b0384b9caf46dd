package extender

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The messages are those of k8s.io/kube-scheduler/extender/v1, whose fields have no tags.

type filterArgs struct {
	Pod       *corev1.Pod
	Nodes     *corev1.NodeList
	NodeNames *nameList
}

// nameList is a list of thousands of names, read with one allocation for all of them.
type nameList []string

func (l *nameList) UnmarshalJSON(data []byte) error {
	if bytes.ContainsRune(data, '\\') || !bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*[]string)(l)) // not what node names look like
	}
	text := string(data)
	names := make([]string, 0, strings.Count(text, ",")+1)
	for {
		start := strings.IndexByte(text, '"')
		between := text
		if start >= 0 {
			between = text[:start]
		}
		if strings.Trim(between, " \t\r\n[],") != "" {
			return json.Unmarshal(data, (*[]string)(l)) // it knows how to say that this is no name
		}
		if start < 0 {
			break
		}
		length := strings.IndexByte(text[start+1:], '"')
		names = append(names, text[start+1:start+1+length])
		text = text[start+length+2:]
	}
	*l = names
	return nil
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

// priorities are thousands of pairs, written without reflection.
type priorities []hostPriority

func (p priorities) writeTo(buffer *bytes.Buffer) error {
	buffer.WriteByte('[')
	for i := range p {
		if i > 0 {
			buffer.WriteByte(',')
		}
		buffer.WriteString(`{"Host":`)
		name, err := quote(buffer.AvailableBuffer(), p[i].Host)
		if err != nil {
			return err
		}
		buffer.Write(name)
		buffer.WriteString(`,"Score":`)
		buffer.Write(strconv.AppendInt(buffer.AvailableBuffer(), p[i].Score, 10))
		buffer.WriteByte('}')
	}
	buffer.WriteByte(']')
	return nil
}

// quote a name as JSON does. Node names need no escapes; what does goes the long way.
func quote(to []byte, name string) ([]byte, error) {
	for i := range len(name) {
		c := name[i]
		plain := c == '-' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !plain {
			return json.Marshal(name)
		}
	}
	to = append(to, '"')
	to = append(to, name...)
	return append(to, '"'), nil
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
	out := map[string]*metaVictims{}
	for node, v := range a.NodeNameToMetaVictims {
		if v != nil {
			v.Pods = slices.DeleteFunc(v.Pods, func(p *metaPod) bool { return p == nil })
			out[node] = v
		}
	}
	if a.NodeNameToMetaVictims != nil {
		return out
	}
	for node, v := range a.NodeNameToVictims {
		if v == nil {
			continue
		}
		m := &metaVictims{NumPDBViolations: v.NumPDBViolations}
		for _, pod := range v.Pods {
			if pod != nil {
				m.Pods = append(m.Pods, &metaPod{UID: pod.UID})
			}
		}
		out[node] = m
	}
	return out
}
