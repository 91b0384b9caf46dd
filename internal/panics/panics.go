// Package panics contains defects that concern one object: a panic while it is handled is caught, counted and logged,
// and becomes an error. Who handles the object sets it aside; the others go on.
//
// Words: docs/design/glossary.md.
package panics

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
)

// Total of the defects that were contained, by stage. A program that contains any registers it.
var Total = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "elastic_contained_panics_total",
	Help: "Defects that concerned one object, which was set aside while the others went on, by stage.",
}, []string{"stage"})

// Defect is a panic that was contained.
type Defect struct{ value any }

// Error says what to do about it.
func (d *Defect) Error() string {
	return fmt.Sprintf("a defect in Elastic concerns this object, which is set aside (%v): please report it, with the log", d.value)
}

// Is says whether an error is a defect.
func Is(err error) bool {
	defect := (*Defect)(nil)
	return errors.As(err, &defect)
}

// Contain does what concerns one object. A panic ends that, and is returned as a Defect.
func Contain(log logr.Logger, stage, object string, work func() error) (err error) {
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		Total.WithLabelValues(stage).Inc()
		log.Error(fmt.Errorf("panic: %v", value), "a defect concerns one object, which is set aside; please report it",
			"stage", stage, "object", object, "stack", string(debug.Stack()))
		err = &Defect{value}
	}()
	return work()
}
