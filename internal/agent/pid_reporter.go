package agent

import (
	"context"
	"sync"
	"time"

	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/panics"
)

// pidReportPeriod is how often new processes are looked for.
const pidReportPeriod = time.Second

// pidReporter reports to each process under the library, soon after it begins, the pid by which the driver knows it:
// until then what it uses beyond its requests is an estimate.
type pidReporter struct {
	node  *Node
	known map[string]bool // by socket
}

// Start reports until ctx ends.
func (r *pidReporter) Start(ctx context.Context) error {
	tick := time.NewTicker(pidReportPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		grants, err := r.node.slots.Grants()
		if err != nil {
			r.node.Log.Error(err, "reading what containers have")
			continue
		}
		r.report(ctx, grants)
	}
}

// report to the processes that are new. All containers are asked at once, and none is waited for longer than a share's
// processes may take in all.
func (r *pidReporter) report(ctx context.Context, grants []slots.Grant) {
	seen := map[string]bool{}
	var asking sync.WaitGroup
	for i := range grants {
		if grants[i].Backend != r.node.shares.Name() {
			continue
		}
		isNew := false
		for _, socket := range r.node.shares.Sockets(grants[i].ID) {
			seen[socket] = true
			isNew = isNew || !r.known[socket]
		}
		if isNew {
			asking.Go(func() {
				// One that does not answer has ended.
				_ = panics.Contain(r.node.Log, "pids", grants[i].Pod.String(), func() error {
					_, err := r.node.shares.Processes(ctx, &grants[i].Share)
					return err
				})
			})
		}
	}
	asking.Wait()
	r.known = seen
}
