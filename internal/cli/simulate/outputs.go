package simulate

import (
	"errors"
	"fmt"
	"os"

	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// outputs are the files that a comparison writes beside what it prints. They are opened before the first run, and an error of one takes
// nothing away from what is printed.
type outputs struct {
	plotTo, timelineTo string // "": none is asked for
	plot               *os.File
	timeline           *timelineFile
}

// open them for the jobs of a trace.
func (o *outputs) open(trace *world.Trace) (err error) {
	if o.plotTo != "" {
		if o.plot, err = os.Create(o.plotTo); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	if o.timelineTo != "" {
		if o.timeline, err = newTimeline(o.timelineTo, trace); err != nil {
			return fmt.Errorf("--timeline: %w", err)
		}
	}
	return nil
}

// close the files, with a plot of the variants, if there are any.
func (o *outputs) close(variants []world.Variant) error {
	var errs []error
	if o.plot != nil {
		if len(variants) > 0 {
			errs = append(errs, world.Plot(o.plot, variants))
		}
		errs = append(errs, o.plot.Close())
	}
	return errors.Join(append(errs, o.timeline.close())...)
}
