package exporter

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// meter adds up what the processes of a container have done, also those that have ended. They say it themselves: so no
// more is believed than the time that has passed. What a process says beyond that is counted as time passes, and a
// forged count is at most that of a container which has its card all the time.
type meter struct {
	uid   types.UID
	at    time.Time           // of the last reading
	last  map[process]counted // of the processes that are there
	total map[string]reading  // by card
}

// process of a container, on one of its cards.
type process struct{ socket, card string }

// counted is how much of what a process said is in the total.
type counted struct {
	pid int
	reading
}

type reading struct{ busy, waited time.Duration }

// read what the processes say now.
func (m *meter) read(cards []share.Card, processes []gpushare.Process, now time.Time) {
	passed := max(now.Sub(m.at), 0)
	if m.at.IsZero() {
		// The agent may be younger than the processes: they have had as long as they are old.
		passed = 0
		for _, p := range processes {
			passed = max(passed, p.Age)
		}
	}
	last, total := map[process]counted{}, map[string]reading{}
	for _, card := range cards {
		sum, left := m.total[card.UUID], passed
		for i := range processes {
			p := &processes[i]
			key := process{p.Socket, card.UUID}
			was, known := m.last[key]
			if p.Silent {
				if known {
					last[key] = was // it is there, and goes on from what is counted
				}
				continue
			}
			said, uses := onCard(p, card.UUID)
			if !uses {
				continue
			}
			if was.pid != p.PID || said.busy < was.busy || said.waited < was.waited {
				was = counted{pid: p.PID} // another one, in the place of one that has ended
			}
			// One process has its card no longer than it is there, and all together no longer than time has passed.
			more := reading{min(said.busy-was.busy, p.Age, left), min(said.waited-was.waited, p.Age, passed)}
			left -= more.busy
			last[key] = counted{p.PID, reading{was.busy + more.busy, was.waited + more.waited}}
			sum = reading{sum.busy + more.busy, sum.waited + more.waited}
		}
		total[card.UUID] = sum
	}
	m.at, m.last, m.total = now, last, total
}

// onCard is what a process says of a card.
func onCard(p *gpushare.Process, uuid string) (reading, bool) {
	for _, d := range p.Devices {
		if d.UUID == uuid {
			return reading{time.Duration(d.BusyNS), time.Duration(d.WaitedNS)}, true
		}
	}
	return reading{}, false
}

// memoryOf a container on a card, by what its processes say and at most as much as there is: used, of that on the host,
// and how many they are.
func memoryOf(uuid string, most int64, processes []gpushare.Process) (used, swapped int64, count int) {
	for _, p := range processes {
		for _, d := range p.Devices {
			if d.UUID == uuid {
				count++
				used = max(used, min(d.Used, most))
				swapped = min(swapped+min(d.Swapped, most), most)
			}
		}
	}
	return used, min(swapped, used), count
}
