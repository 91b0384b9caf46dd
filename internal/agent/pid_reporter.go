package agent

import (
	"context"
	"time"
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
		seen := map[string]bool{}
		for _, grant := range grants {
			if grant.Backend != r.node.shares.Name() {
				continue
			}
			isNew := false
			for _, socket := range r.node.shares.Sockets(grant.ID) {
				seen[socket] = true
				isNew = isNew || !r.known[socket]
			}
			if isNew {
				_, _ = r.node.shares.Processes(ctx, grant.ID) // one that does not answer has ended
			}
		}
		r.known = seen
	}
}
