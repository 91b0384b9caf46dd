package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/panics"
)

// mostProcesses of a card that its GPU object lists, those with the most memory.
const mostProcesses = 32

// CardProcesses looks from time to time at what runs on the node's cards, for their GPU objects. The driver says which
// processes have how much there; the library of each, what of its memory is on the host. A process that does not answer
// holds up nobody: the publisher has what was seen last.
type CardProcesses struct {
	Grants func() ([]slots.Grant, error)
	// OnCard are the processes that the driver sees on a card.
	OnCard func(ctx context.Context, uuid string) ([]discovery.Process, error)
	// UnderLibrary are those of a share that answer. They are the tenant's: what they say is bounded here.
	UnderLibrary func(ctx context.Context, s *share.Share) ([]gpushare.Process, error)
	// IsOf says whether a process is one of the pod that has a share.
	IsOf func(pid int, s *share.Share) bool
	Log  logr.Logger

	mu   sync.Mutex
	seen map[string][]egpu.GPUProcess // by UUID, of cards that were asked for
}

// Of a card, as they were seen last, by pid; nil where nobody looked yet. Cards that are asked for are looked at from then on.
func (c *CardProcesses) Of(uuid string) []egpu.GPUProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string][]egpu.GPUProcess{}
	}
	list, asked := c.seen[uuid]
	if !asked {
		c.seen[uuid] = nil
	}
	return list
}

// Start looks until ctx ends.
func (c *CardProcesses) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, c.Look, refresh)
	return nil
}

// Look at all cards once. One that cannot be looked at stays as it was.
func (c *CardProcesses) Look(ctx context.Context) {
	grants, err := c.Grants()
	if err != nil {
		c.Log.Error(err, "reading what containers have")
		return
	}
	c.mu.Lock()
	cards := slices.Sorted(maps.Keys(c.seen))
	c.mu.Unlock()
	swapped := c.askLibraries(ctx, grants)
	for _, uuid := range cards {
		err := panics.Contain(c.Log, "processes", uuid, func() error {
			list, err := c.onCard(ctx, uuid, grants, swapped)
			if err == nil {
				c.mu.Lock()
				c.seen[uuid] = list
				c.mu.Unlock()
			}
			return err
		})
		if err != nil && ctx.Err() == nil {
			c.Log.V(1).Info("what runs on a card is not known", "card", uuid, "error", err.Error())
		}
	}
}

// processOnCard is one process on one of its cards.
type processOnCard struct {
	pid  int
	uuid string
}

// swappedOf is what a process has on the host, and whose it is.
type swappedOf struct {
	grant *slots.Grant
	bytes int64
}

// askLibraries of all containers at once: one that takes its time costs the others none.
func (c *CardProcesses) askLibraries(ctx context.Context, grants []slots.Grant) map[processOnCard]swappedOf {
	answers := make([][]gpushare.Process, len(grants))
	var asking sync.WaitGroup
	for i := range grants {
		g := &grants[i]
		if g.Backend != "gpushare" {
			continue
		}
		asking.Go(func() {
			_ = panics.Contain(c.Log, "ask", g.Pod.String(), func() (err error) {
				answers[i], err = c.UnderLibrary(ctx, &g.Share)
				return err
			}) // what is not known is not told
		})
	}
	asking.Wait()
	out := map[processOnCard]swappedOf{}
	for i := range grants {
		for _, p := range answers[i] {
			for _, d := range p.Devices {
				if !p.Silent && has(&grants[i], d.UUID) {
					out[processOnCard{p.PID, d.UUID}] = swappedOf{&grants[i], max(d.Swapped, 0)}
				}
			}
		}
	}
	return out
}

func has(g *slots.Grant, uuid string) bool {
	return slices.ContainsFunc(g.Cards, func(card share.Card) bool { return card.UUID == uuid })
}

// onCard lists the processes of a card: those that the driver sees, and those whose memory is on the host.
func (c *CardProcesses) onCard(ctx context.Context, uuid string, grants []slots.Grant, swapped map[processOnCard]swappedOf) ([]egpu.GPUProcess, error) {
	driver, err := c.OnCard(ctx, uuid)
	if err != nil {
		return nil, err
	}
	list := map[int]egpu.GPUProcess{}
	for _, p := range driver {
		out := egpu.GPUProcess{PID: p.PID, Memory: p.MemoryMB}
		for i := range grants {
			g := &grants[i]
			switch {
			case !has(g, uuid) || !c.IsOf(p.PID, &g.Share):
			case out.Pod == "":
				out.Pod, out.Container = g.Pod.String(), g.Container
			default:
				out.Container = "" // which of the pod's is not known
			}
		}
		list[p.PID] = out
	}
	for at, s := range swapped {
		p, onCard := list[at.pid]
		if at.uuid != uuid || !onCard && s.bytes == 0 {
			continue
		}
		p.PID, p.Pod, p.Container, p.Swapped = at.pid, s.grant.Pod.String(), s.grant.Container, s.bytes>>20
		list[at.pid] = p
	}
	all := slices.SortedFunc(maps.Values(list), func(a, b egpu.GPUProcess) int {
		return cmp.Or(cmp.Compare(b.Memory+b.Swapped, a.Memory+a.Swapped), cmp.Compare(a.PID, b.PID))
	})
	all = all[:min(mostProcesses, len(all))]
	slices.SortFunc(all, func(a, b egpu.GPUProcess) int { return cmp.Compare(a.PID, b.PID) })
	return all, nil
}

// sameProcesses ignores small changes of memory, of a card that has so much.
func sameProcesses(have, want []egpu.GPUProcess, memory int64) bool {
	return slices.EqualFunc(have, want, func(a, b egpu.GPUProcess) bool {
		near := func(a, b int64) bool { return max(a-b, b-a)*100 < max(memory, 1)*loadStep }
		return a.PID == b.PID && a.Pod == b.Pod && a.Container == b.Container && (a.Swapped == 0) == (b.Swapped == 0) &&
			near(a.Memory, b.Memory) && near(a.Swapped, b.Swapped)
	})
}
