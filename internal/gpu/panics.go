package gpu

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/panics"
)

// A panic while one object is taken in, asked about or published must not stop the scheduler for all. The
// object is set aside until it changes; the others go on. What the engine knew of it stays: a pod that has
// cards goes on having them.

// Stages in which a panic is contained, as a metric's label.
const (
	stageHandle  = "handle"
	stageAsk     = "ask"
	stagePublish = "publish"
)

// aside is an object that is set aside, as of when it was.
type aside struct {
	uid     types.UID
	version string
}

func asideKey(object client.Object) string {
	return fmt.Sprintf("%T %s", object, client.ObjectKeyFromObject(object))
}

// handleSafely is handle; a panic sets the object aside.
func (s *Shell) handleSafely(m message) {
	if m.object == nil {
		_ = s.guard(stageAsk, nil, m.ask)
		return
	}
	key, is := asideKey(m.object), aside{m.object.GetUID(), m.object.GetResourceVersion()}
	if was, set := s.aside[key]; set && was == is && !m.gone {
		return
	}
	delete(s.aside, key)
	if s.guard(stageHandle, m.object, func() { s.handle(m) }) != nil && !m.gone {
		s.aside[key] = is
	}
}

// guard does what concerns one object. A panic is counted, logged and told to who has the object, and is the error.
func (s *Shell) guard(stage string, object client.Object, work func()) error {
	name := "none"
	if object != nil {
		name = asideKey(object)
	}
	err := panics.Contain(s.options.Log, stage, name, func() error {
		if s.faults != nil {
			s.faults(stage, object)
		}
		work()
		return nil
	})
	if err != nil {
		s.event(object, "SetAside", "%v", err)
	}
	return err
}

// event warns who has an object.
func (s *Shell) event(object client.Object, reason, note string, args ...any) {
	if s.options.Events != nil && object != nil {
		s.options.Events.Eventf(object, nil, corev1.EventTypeWarning, reason, "Schedule", note, args...)
	}
}
