//go:build cgo

package discovery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// health remembers what the driver said of cards.
type health struct {
	mu       sync.Mutex
	problems map[string]problem // by UUID
	now      func() time.Time
}

type problem struct {
	text string
	at   time.Time
}

// forgiven is how long a card is avoided after an error, if it answers. One that fails again is marked
// again.
const forgiven = 10 * time.Minute

// harmless errors (XIDs) are faults of programs, not of cards.
var harmless = map[uint64]bool{13: true, 31: true, 43: true, 45: true, 68: true, 109: true}

func (h *health) mark(uuid, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems[uuid] = problem{text, h.now()}
}

func (h *health) of(uuid string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, known := h.problems[uuid]
	if known && h.now().Sub(p.at) > forgiven {
		delete(h.problems, uuid)
		return ""
	}
	return p.text
}

// Start listens to what the driver says of cards, until ctx ends. Where it says nothing, a card is well
// as long as it answers.
func (n *NVML) Start(ctx context.Context) error {
	set, ret := n.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		<-ctx.Done()
		return nil
	}
	defer func() { _ = set.Free() }()
	const errors = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError
	count, _ := n.lib.DeviceGetCount()
	for i := range count {
		if device, ret := n.lib.DeviceGetHandleByIndex(i); ret == nvml.SUCCESS {
			if supported, ret := device.GetSupportedEventTypes(); ret == nvml.SUCCESS {
				_ = device.RegisterEvents(supported&errors, set)
			}
		}
	}
	for ctx.Err() == nil {
		event, ret := set.Wait(1000) // milliseconds
		if ret == nvml.SUCCESS {
			n.onEvent(event)
		} else if ret != nvml.ERROR_TIMEOUT {
			select { // a driver that does not answer now may do so later
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

func (n *NVML) onEvent(event nvml.EventData) {
	if event.EventType == nvml.EventTypeXidCriticalError && harmless[event.EventData] {
		return
	}
	uuid, ret := event.Device.GetUUID()
	if ret != nvml.SUCCESS {
		return // the card that has fallen off the bus is seen when it is next asked
	}
	text := fmt.Sprintf("the driver reports XID %d", event.EventData)
	if event.EventType == nvml.EventTypeDoubleBitEccError {
		text = "its memory has an error that cannot be corrected"
	}
	n.health.mark(uuid, text)
}
