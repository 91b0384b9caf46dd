package agent

import (
	"context"
	"time"
)

// greeting is how often new processes are looked for.
const greeting = time.Second

// greeter tells each process under the library, soon after it begins, by which pid the driver knows it:
// until then what it uses beyond its requests is an estimate.
type greeter struct {
	node  *Node
	known map[string]bool // by socket
}

// Start greets until ctx ends.
func (g *greeter) Start(ctx context.Context) error {
	tick := time.NewTicker(greeting)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		grants, err := g.node.slots.Grants()
		if err != nil {
			g.node.Log.Error(err, "reading what containers have")
			continue
		}
		seen := map[string]bool{}
		for _, grant := range grants {
			if grant.Backend != g.node.shares.Name() {
				continue
			}
			greet := false
			for _, socket := range g.node.shares.Sockets(grant.ID) {
				seen[socket] = true
				greet = greet || !g.known[socket]
			}
			if greet {
				_, _ = g.node.shares.Processes(ctx, grant.ID) // who does not answer has ended
			}
		}
		g.known = seen
	}
}
