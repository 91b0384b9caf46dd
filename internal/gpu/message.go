package gpu

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// message is an object that changed or went, or a question.
type message struct {
	object client.Object
	gone   bool
	ask    func()
}

func changed(object client.Object, gone bool) message { return message{object: object, gone: gone} }

func about(m message) client.Object { return m.object }

func (s *Shell) ask(question func()) { s.inbox.Put(message{ask: question}) }

// inOrder sorts messages: cards and nodes, ElasticGPUs, pods; a question is answered after all that changed
// before it.
func inOrder(messages []message) {
	slices.SortStableFunc(messages, func(x, y message) int { return cmp.Compare(rank(x), rank(y)) })
}

func rank(m message) int {
	if m.ask != nil {
		return 5
	}
	switch o := m.object.(type) {
	case *egpu.GPU:
		return 0 // before its node, which then is described once
	case *corev1.Node:
		return 1
	case *egpu.ElasticGPU:
		return 2
	case *corev1.Pod:
		if o.Annotations[egpu.Assumed] == "true" {
			return 3
		}
	}
	return 4 // pods that do not say which cards they have get what the others leave
}
