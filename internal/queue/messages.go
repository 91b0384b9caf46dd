package queue

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/devices"
)

// message is one thing for the loop to handle: an object that changed or was deleted, the result of
// a write (of a workload's or a queue's status), devices that a search found, or a question.
type message struct {
	object        client.Object
	deleted       bool
	written       *writeResult
	statusWritten *statusResult
	found         *devices.Search
	created       *variantCreated
	createAgain   *kueue.Workload
	question      func()
}

func changed(object client.Object, deleted bool) message {
	return message{object: object, deleted: deleted}
}

func about(m message) client.Object { return m.object }
