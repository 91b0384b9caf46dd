package mps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
)

// Daemons of MPS, one for each card that has shares. They end with the last share of their card.
type Daemons struct {
	// Dir is ours alone; Control is nvidia-cuda-mps-control.
	Dir, Control string

	mu sync.Mutex // a daemon is started or ended by one at a time
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

// Attach has the card's daemon run for a share, and says what of it the share's container must see.
func (d *Daemons) Attach(ctx context.Context, id, uuid string) ([]*specs.Mount, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// First that it is ours, then that it is there: a daemon that is not recorded would never end.
	var was []string
	if err := backend.Recall(d.shares(), id, &was); err != nil {
		return nil, err
	}
	if !slices.Equal(was, []string{uuid}) {
		if err := d.detach(ctx, id); err != nil {
			return nil, err
		}
	}
	if err := backend.Record(d.shares(), id, []string{uuid}); err != nil {
		return nil, err
	}
	if _, err := d.run(ctx, uuid); err != nil {
		return nil, fmt.Errorf("MPS of card %s: %w", uuid, err)
	}
	return []*specs.Mount{
		{HostPath: d.card(uuid, "pipe"), ContainerPath: pipeDir, Options: []string{"rw", "nosuid", "bind"}},
		{HostPath: d.card(uuid, "shm"), ContainerPath: shmDir, Options: []string{"rw", "nosuid", "nodev", "bind"}},
	}, nil
}

// Detach forgets the share, and ends the daemon of a card that has no other. That it is not there is no error.
func (d *Daemons) Detach(ctx context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.detach(ctx, id)
}

// Restart the daemons that have shares and do not answer, and say of which cards. Programs that were theirs have lost the
// card, and find the new one when they are started again.
func (d *Daemons) Restart(ctx context.Context) (cards []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	used, err := d.used("")
	for uuid := range used {
		started, failed := d.run(ctx, uuid)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("MPS of card %s: %w", uuid, failed))
		}
		if started {
			cards = append(cards, uuid)
		}
	}
	slices.Sort(cards)
	return cards, err
}

// Attached lists the shares that daemons run for.
func (d *Daemons) Attached() ([]string, error) { return backend.Recorded(d.shares()) }

// run the daemon of a card, unless it answers.
func (d *Daemons) run(ctx context.Context, uuid string) (started bool, err error) {
	if err := os.MkdirAll(d.card(uuid, "log"), 0o750); err != nil {
		return false, err
	}
	for name, folder := range folders {
		if err := folder.Mount(d.card(uuid, name)); err != nil {
			return false, err
		}
	}
	if d.send(ctx, uuid, "get_server_list") == nil {
		return false, nil
	}
	// Containers run as any user: without this, one user's wait until all of another's have ended. Drivers before it was
	// there know no such word.
	out, err := runWithShm(d.command(ctx, uuid, "-d", "-multiuser-server"), d.card(uuid, "shm"))
	if err != nil {
		out, err = runWithShm(d.command(ctx, uuid, "-d"), d.card(uuid, "shm"))
	}
	if err != nil {
		return false, fmt.Errorf("starting %s: %w: %s%s", d.Control, err, strings.TrimSpace(string(out)), tooLong(d.card(uuid, "pipe")))
	}
	return true, d.send(ctx, uuid, "get_server_list")
}

// maxSocketPath is what the kernel takes.
const maxSocketPath = 107

// longestSocket is what the daemon calls one of its sockets; the others' names are shorter.
const longestSocket = "control_privileged"

// tooLong says of a daemon's folder what the daemon does not when it ends: its socket's path is too long.
func tooLong(pipe string) string {
	if n := len(filepath.Join(pipe, longestSocket)); n > maxSocketPath {
		return fmt.Sprintf("its socket's path in %s would have %d bytes, and the kernel takes %d: use a shorter state folder", pipe, n, maxSocketPath)
	}
	return ""
}

// send a command to the daemon of a card.
func (d *Daemons) send(ctx context.Context, uuid, what string) error {
	cmd := d.command(ctx, uuid)
	cmd.Stdin = strings.NewReader(what + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", what, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (d *Daemons) command(ctx context.Context, uuid string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.Control, args...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+uuid,
		"CUDA_MPS_PIPE_DIRECTORY="+d.card(uuid, "pipe"), "CUDA_MPS_LOG_DIRECTORY="+d.card(uuid, "log"))
	return cmd
}

func (d *Daemons) detach(ctx context.Context, id string) error {
	var cards []string
	if err := backend.Recall(d.shares(), id, &cards); err != nil {
		return err
	}
	for _, uuid := range cards {
		used, err := d.used(id)
		if err != nil {
			return err
		}
		if used[uuid] {
			continue
		}
		if d.send(ctx, uuid, "get_server_list") == nil {
			if err := d.send(ctx, uuid, "quit"); err != nil {
				return err
			}
		}
		for name := range folders {
			if err := backend.Unmount(d.card(uuid, name)); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(d.card(uuid)); err != nil {
			return err
		}
	}
	return backend.Forget(d.shares(), id)
}

// used are the cards that have shares other than this one.
func (d *Daemons) used(but string) (map[string]bool, error) {
	ids, err := backend.Recorded(d.shares())
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, id := range ids {
		var cards []string
		if id == but {
			continue
		}
		if err := backend.Recall(d.shares(), id, &cards); err != nil {
			return nil, err
		}
		for _, uuid := range cards {
			all[uuid] = true
		}
	}
	return all, nil
}

func (d *Daemons) shares() string { return filepath.Join(d.Dir, "shares") }

// card is a folder of a card's daemon. Its name is short, as there are sockets in it. A daemon that runs where an earlier
// agent started it is found there.
func (d *Daemons) card(uuid string, names ...string) string {
	sum := sha256.Sum256([]byte(uuid))
	folder := hex.EncodeToString(sum[:6])
	if long := filepath.Base(uuid); isFolder(filepath.Join(d.Dir, "cards", long)) {
		folder = long
	}
	return filepath.Join(append([]string{d.Dir, "cards", folder}, names...)...)
}

func isFolder(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
