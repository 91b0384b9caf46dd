package agent

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// Offsets in the file of an arbiter's decisions (native/cuda/turn_files.h).
const (
	decisionBeat = 8
	decisionTurn = 64 // of the container's first process
)

// decisions that the arbiter has written for a pod's container: when it last looked, and the number of the last turn.
func decisions(p *corev1.Pod) (beat uint64, turn uint32, err error) {
	grants, err := (&slots.Slots{Dir: nodeDir("cdi")}).Grants()
	if err != nil {
		return 0, 0, err
	}
	for _, g := range grants {
		if g.UID != p.UID {
			continue
		}
		dir := nodeDir("elastic-gpu", "gpushare", "shares", g.ID, "etc", "turns")
		cards, err := os.ReadDir(dir)
		if err != nil || len(cards) != 1 {
			return 0, 0, fmt.Errorf("%d files in %s: %w", len(cards), dir, err)
		}
		data, err := os.ReadFile(dir + "/" + cards[0].Name())
		if err != nil || len(data) < decisionTurn+4 {
			return 0, 0, fmt.Errorf("%d bytes of decisions: %w", len(data), err)
		}
		return binary.NativeEndian.Uint64(data[decisionBeat:]), binary.NativeEndian.Uint32(data[decisionTurn:]), nil
	}
	return 0, 0, fmt.Errorf("pod %s has no grant on the node", p.Name)
}

// eventuallyTurns waits until the arbiter has looked later than that, and given and taken more turns.
func eventuallyTurns(t *testing.T, p *corev1.Pod, beat uint64, turn uint32) {
	t.Helper()
	sandbox.Eventually(t, "turns of "+p.Name, func(context.Context) error {
		now, at, err := decisions(p)
		if err == nil && (now <= beat || at < turn+4) {
			err = fmt.Errorf("the arbiter last looked at %d, turn %d", now, at)
		}
		return err
	})
}

func arbiter(t *testing.T) local.ProgramState {
	t.Helper()
	c, err := local.Open("test")
	if err != nil {
		t.Fatal(err)
	}
	state, err := c.State()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range state.Programs {
		if p.Name == "elastic-gpu-arbiter" {
			return p
		}
	}
	t.Fatalf("no arbiter runs: %+v", state.Programs)
	return local.ProgramState{}
}

// Containers that share a card have their turns from the node's arbiter, also from the next one when it ends.
func TestArbiterServesContainers(t *testing.T) {
	ns := cluster.Namespace(t)
	all := []*corev1.Pod{}
	for i := range 2 {
		p := pod(ns, fmt.Sprint("works", i), []string{"work"}, egpu.ResourceCore, 30, egpu.ResourceMemory, 1000)
		cluster.Make(t, p)
		all = append(all, p)
	}
	for _, p := range all {
		probed(t, p).holds(t, 30, 1000)
		eventuallyTurns(t, p, 0, 0)
	}
	was := arbiter(t)
	if err := syscall.Kill(was.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "another arbiter", func(context.Context) error {
		if now := arbiter(t); now.PID == was.PID {
			return fmt.Errorf("it is still process %d", now.PID)
		}
		return nil
	})
	for _, p := range all {
		beat, turn, err := decisions(p)
		if err != nil {
			t.Fatal(err)
		}
		eventuallyTurns(t, p, beat, turn)
	}
}
