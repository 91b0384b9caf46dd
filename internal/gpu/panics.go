package gpu

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"
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

// ErrDefect is the answer to a question that met a defect.
var ErrDefect = errors.New("a defect in the GPU scheduler concerns this object; its log has more")

// Metrics of the shell.
type Metrics struct{ panics *prometheus.CounterVec }

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "elastic_contained_panics_total",
		Help: "Defects that concerned one object, which was set aside while the others went on, by stage.",
	}, []string{"stage"})}
	registry.MustRegister(m.panics)
	return m
}

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
		s.guard(stageAsk, nil, m.ask)
		return
	}
	key, is := asideKey(m.object), aside{m.object.GetUID(), m.object.GetResourceVersion()}
	if was, set := s.aside[key]; set && was == is && !m.gone {
		return
	}
	delete(s.aside, key)
	if !s.guard(stageHandle, m.object, func() { s.handle(m) }) && !m.gone {
		s.aside[key] = is
	}
}

// guard runs what concerns one object, and says whether it came to its end.
func (s *Shell) guard(stage string, object client.Object, work func()) (ended bool) {
	defer func() {
		if v := recover(); v != nil {
			s.contain(stage, object, v, debug.Stack())
		}
	}()
	if s.faults != nil {
		s.faults(stage, object)
	}
	work()
	return true
}

// contain reports a panic: to the log, in a metric, and to who has the object.
func (s *Shell) contain(stage string, object client.Object, value any, stack []byte) {
	if s.options.Metrics != nil {
		s.options.Metrics.panics.WithLabelValues(stage).Inc()
	}
	name := "none"
	if object != nil {
		name = asideKey(object)
	}
	s.options.Log.Error(fmt.Errorf("panic: %v", value), "a defect concerns one object, which is set aside; please report it",
		"stage", stage, "object", name, "stack", string(stack))
	s.event(object, "SetAside", "A defect in the GPU scheduler concerns this object (%v). It is set aside until it changes", value)
}

// event warns who has an object.
func (s *Shell) event(object client.Object, reason, note string, args ...any) {
	if s.options.Events != nil && object != nil {
		s.options.Events.Eventf(object, nil, corev1.EventTypeWarning, reason, "Schedule", note, args...)
	}
}
