package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Backend of shares by MPS.
type Backend struct {
	Driver backend.Driver
	// Dir is ours alone; Control is nvidia-cuda-mps-control.
	Dir, Control string
}

// Each card's daemon has folders of its own, which it and its clients see and no others do: its pipes, and the memory
// that they share, as large as what a container runtime gives each of 48 clients (64 MiB).
var folders = map[string]backend.Tmpfs{
	"pipe": {MB: 16, Inodes: 4096, Mode: 0o755},
	"shm":  {MB: 48 * 64, Inodes: 1 << 16, Mode: 0o1777},
}

// pipeDir is where programs in the container find the daemon, shmDir where they and it share memory.
const (
	pipeDir = "/run/nvidia-mps"
	shmDir  = "/dev/shm"
)

// Name by which classes choose it.
func (*Backend) Name() string { return "mps" }

// Prepare has a daemon run for the card, and says how the container reaches it and with what.
func (b *Backend) Prepare(ctx context.Context, s *share.Share) (*specs.ContainerEdits, error) {
	if len(s.Cards) != 1 {
		return nil, fmt.Errorf("container %s of pod %s has %d cards: MPS shares one", s.Container, s.Pod, len(s.Cards))
	}
	card := s.Cards[0]
	// First that it is ours, then that it is there: a daemon that is not recorded would never end.
	var was []string
	if err := backend.Recall(b.shares(), s.ID, &was); err != nil {
		return nil, err
	}
	if !slices.Equal(was, []string{card.UUID}) {
		if err := b.Release(ctx, s.ID); err != nil {
			return nil, err
		}
	}
	if err := backend.Record(b.shares(), s.ID, []string{card.UUID}); err != nil {
		return nil, err
	}
	if err := b.run(ctx, card.UUID); err != nil {
		return nil, fmt.Errorf("MPS of card %d: %w", card.Index, err)
	}
	edits, err := b.Driver.Edits(s)
	if err != nil {
		return nil, err
	}
	edits.Env = append(edits.Env, "CUDA_MPS_PIPE_DIRECTORY="+pipeDir)
	if card.Percent < 100 {
		edits.Env = append(edits.Env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%g", card.Percent))
	}
	if card.MemoryMB < card.Card.MemoryMB {
		// To the daemon and its clients there is one card, and it is the first.
		edits.Env = append(edits.Env, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", card.MemoryMB))
	}
	edits.Mounts = append(edits.Mounts,
		&specs.Mount{HostPath: b.card(card.UUID, "pipe"), ContainerPath: pipeDir, Options: []string{"rw", "nosuid", "bind"}},
		&specs.Mount{HostPath: b.card(card.UUID, "shm"), ContainerPath: shmDir, Options: []string{"rw", "nosuid", "nodev", "bind"}})
	return edits, nil
}

// run the daemon of a card, unless it answers.
func (b *Backend) run(ctx context.Context, uuid string) error {
	if err := os.MkdirAll(b.card(uuid, "log"), 0o750); err != nil {
		return err
	}
	for name, folder := range folders {
		if err := folder.Mount(b.card(uuid, name)); err != nil {
			return err
		}
	}
	if b.send(ctx, uuid, "get_server_list") == nil {
		return nil
	}
	if out, err := runWithShm(b.command(ctx, uuid, "-d"), b.card(uuid, "shm")); err != nil {
		return fmt.Errorf("starting %s: %w: %s", b.Control, err, strings.TrimSpace(string(out)))
	}
	return b.send(ctx, uuid, "get_server_list")
}

// send a command to the daemon of a card.
func (b *Backend) send(ctx context.Context, uuid, what string) error {
	cmd := b.command(ctx, uuid)
	cmd.Stdin = strings.NewReader(what + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", what, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (b *Backend) command(ctx context.Context, uuid string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.Control, args...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+uuid,
		"CUDA_MPS_PIPE_DIRECTORY="+b.card(uuid, "pipe"), "CUDA_MPS_LOG_DIRECTORY="+b.card(uuid, "log"))
	return cmd
}

// Release forgets the share, and ends the daemon of a card that has no other.
func (b *Backend) Release(ctx context.Context, id string) error {
	var cards []string
	if err := backend.Recall(b.shares(), id, &cards); err != nil {
		return err
	}
	for _, uuid := range cards {
		used, err := b.used(uuid, id)
		if err != nil {
			return err
		}
		if used {
			continue
		}
		if b.send(ctx, uuid, "get_server_list") == nil {
			if err := b.send(ctx, uuid, "quit"); err != nil {
				return err
			}
		}
		for name := range folders {
			if err := backend.Unmount(b.card(uuid, name)); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(b.card(uuid)); err != nil {
			return err
		}
	}
	return backend.Forget(b.shares(), id)
}

// used says whether a share other than this one is on the card.
func (b *Backend) used(uuid, but string) (bool, error) {
	ids, err := backend.Recorded(b.shares())
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		var cards []string
		if id == but {
			continue
		}
		err = errors.Join(err, backend.Recall(b.shares(), id, &cards))
		if slices.Contains(cards, uuid) {
			return true, nil
		}
	}
	return false, err
}

// Held lists the shares that are written down.
func (b *Backend) Held(context.Context) ([]string, error) { return backend.Recorded(b.shares()) }

func (b *Backend) shares() string { return filepath.Join(b.Dir, "shares") }

func (b *Backend) card(uuid string, names ...string) string {
	return filepath.Join(append([]string{b.Dir, "cards", filepath.Base(uuid)}, names...)...)
}
