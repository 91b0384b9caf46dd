package agent_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/go-logr/logr"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// What runs on a card is what the driver sees there, with the pods it belongs to, and what of it is on the host, which its own
// library says. A card that is not known stays as it was.
func TestWhatRunsOnACard(t *testing.T) {
	shared := slots.Grant{Backend: "gpushare", Share: *conformance.Subject{}.Share("1", 0)}
	whole := slots.Grant{Backend: "whole", Share: *conformance.Subject{}.Share("2", 0)}
	uuid := shared.Cards[0].UUID
	driver, broken := []discovery.Process{{PID: 10, MemoryMB: 400}, {PID: 20, MemoryMB: 300}, {PID: 30, MemoryMB: 5}}, error(nil)
	c := &agent.CardProcesses{
		Log:    logr.Discard(),
		Grants: func() ([]slots.Grant, error) { return []slots.Grant{shared, whole}, nil },
		OnCard: func(_ context.Context, of string) ([]discovery.Process, error) {
			if of != uuid {
				t.Errorf("card %s is looked at", of)
			}
			return driver, broken
		},
		UnderLibrary: func(_ context.Context, s *share.Share) ([]gpushare.Process, error) {
			if s.ID != "1" {
				t.Errorf("share %s has no library", s.ID)
			}
			of := func(swapped int64) []gpushare.Device {
				return []gpushare.Device{{UUID: uuid, Swapped: swapped}, {UUID: "another", Swapped: 1 << 30}}
			}
			return []gpushare.Process{{PID: 10, Devices: of(0)}, {PID: 11, Out: true, Devices: of(700 << 20)}, {PID: 12, Devices: of(math.MinInt64)}, {PID: 13, Silent: true, Devices: of(1 << 20)}}, nil
		},
		IsOf: func(pid int, s *share.Share) bool { return pid == 10 && s.ID == "1" || pid == 20 && s.ID == "2" },
	}
	c.Look(t.Context()) // nobody asked for a card yet
	if list := c.Of(uuid); list != nil {
		t.Fatalf("%v is known of a card that nobody looked at", list)
	}
	want := []egpu.GPUProcess{
		{PID: 10, Pod: "team/pod-1", Container: "main", Memory: 400},
		{PID: 11, Pod: "team/pod-1", Container: "main", Swapped: 700},
		{PID: 20, Pod: "team/pod-2", Container: "main", Memory: 300},
		{PID: 30, Memory: 5},
	}
	c.Look(t.Context())
	if got := c.Of(uuid); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	driver, broken = nil, errors.New("the driver does not answer")
	c.Look(t.Context())
	if got := c.Of(uuid); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// Of many, those with the most memory are listed.
	for pid := range 100 {
		driver = append(driver, discovery.Process{PID: 1000 + pid, MemoryMB: int64(pid)})
	}
	broken = nil
	c.Look(t.Context())
	if got := c.Of(uuid); len(got) != 32 || got[0].PID != 11 || got[31].PID != 1099 {
		t.Errorf("%d processes: %+v", len(got), got)
	}
}
