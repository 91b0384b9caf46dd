package gpushare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/specs-go"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Where the library expects its files, inside the container.
const (
	limitsDir   = "/etc/elastic-gpu"
	runDir      = "/run/elastic-gpu"
	requestsDir = "/run/elastic-gpu-requests"
	preloadFile = "/etc/ld.so.preload"
	libraryFile = "/usr/lib/elastic-gpu/libelasticgpu.so"
)

// Version of what is mounted into containers. A container that an older agent prepared may start again with what that one
// wrote down: the library of its version stays on the node for it.
const Version = "2"

// Backend has a folder per share below Dir:
//
//	shares/ID/etc/limits       what the share is
//	shares/ID/etc/turns/UUID   what the node's arbiter decides for the container on a card
//	shares/ID/requests/UUID    what the container asks of the arbiter; in a tmpfs of its own
//	shares/ID/run/             the container's shared file (region) and sockets; a tmpfs of its own
//	ld.so.preload              one line
//
// No two containers can write to the same file or folder.
type Backend struct {
	Driver backend.Driver
	// Dir is ours alone; Library is libelasticgpu.so on the node.
	Dir, Library string
	// Space has the daemons through which containers of a card run at once; nil where there are none.
	Space Space
	// InPod says whether a process is a pod's, for what listens on the sockets; nil asks the kernel.
	InPod func(pid int, uid types.UID) (bool, error)
}

// Space runs a daemon for each card that is shared in space.
type Space interface {
	// Attach has the card's daemon run for a share, and says what of it the share's container must see.
	Attach(ctx context.Context, id, uuid string) ([]*specs.Mount, error)
	// Detach forgets a share. That it was never attached is no error.
	Detach(ctx context.Context, id string) error
}

// Name by which classes choose it.
func (*Backend) Name() string { return "gpushare" }

// Prepare writes the limits and says what to mount.
func (b *Backend) Prepare(ctx context.Context, s *share.Share) (*specs.ContainerEdits, error) {
	if _, err := os.Stat(b.Library); err != nil {
		return nil, fmt.Errorf("the library that holds shares is not on this node: %w", err)
	}
	limits, err := Limits(s)
	if err != nil {
		return nil, err
	}
	dir := b.share(s.ID)
	// The container's shared file begins empty, also after a restart in the same place. A ResourceClaim may be prepared
	// again while its container runs, which then stays with it.
	before, err := os.ReadFile(filepath.Join(dir, "etc", "limits"))
	if s.Claim == nil || err != nil || !bytes.Equal(before, limits) {
		if err := b.clear(s.ID); err != nil {
			return nil, err
		}
	}
	// One that has a folder of the disk, from an agent that mounted none, stays with it.
	if isEmpty(b.run(s.ID)) {
		if err := runFolder.Mount(b.run(s.ID)); err != nil {
			return nil, err
		}
	}
	if err := requestFolder.Mount(b.requests(s.ID)); err != nil {
		return nil, err
	}
	// The library runs as the container's user: what it writes to is open to all users of its container.
	for path, mode := range map[string]fs.FileMode{"etc": 0o755, "etc/turns": 0o755, "requests": 0o755, "run": 0o777} {
		if err := makeFolder(filepath.Join(dir, path), mode); err != nil {
			return nil, err
		}
	}
	if err := b.closeSharedFolder(); err != nil {
		return nil, err
	}
	if err := replace(filepath.Join(b.Dir, "ld.so.preload"), []byte(libraryFile+"\n")); err != nil {
		return nil, err
	}
	if err := replace(filepath.Join(dir, "etc", "limits"), limits); err != nil {
		return nil, err
	}
	edits, err := b.Driver.Edits(s)
	if err != nil {
		return nil, err
	}
	edits.Mounts = append(edits.Mounts,
		mount(b.Library, libraryFile, "ro"),
		mount(filepath.Join(b.Dir, "ld.so.preload"), preloadFile, "ro"),
		mount(filepath.Join(dir, "etc"), limitsDir, "ro"),
		mount(filepath.Join(dir, "run"), runDir, "rw"))
	for _, c := range s.Cards {
		request, decision := filepath.Join(b.requests(s.ID), c.UUID), filepath.Join(dir, "etc", "turns", c.UUID)
		if err := errors.Join(makeFile(request, requestSize, 0o666), makeFile(decision, decisionSize, 0o644)); err != nil {
			return nil, err
		}
		// The file and not its folder: a container can then change what is in it, and not what it is.
		edits.Mounts = append(edits.Mounts, mount(request, filepath.Join(requestsDir, c.UUID), "rw"))
	}
	daemon, err := b.attach(ctx, s)
	edits.Mounts = append(edits.Mounts, daemon...)
	return edits, err
}

// attach a share that is in space to its card's daemon. The share itself the library tells the driver.
func (b *Backend) attach(ctx context.Context, s *share.Share) ([]*specs.Mount, error) {
	switch {
	case s.Parameters["sharing"] != egpu.SharingSpace:
		return nil, b.detach(ctx, s.ID)
	case b.Space == nil:
		return nil, errors.New("the class shares cards in space, and this node has no MPS")
	}
	return b.Space.Attach(ctx, s.ID, s.Cards[0].UUID)
}

func (b *Backend) detach(ctx context.Context, id string) error {
	if b.Space == nil {
		return nil
	}
	return b.Space.Detach(ctx, id)
}

// Sizes of the files that the library and the arbiter map (native/cuda/turn_files.h).
const (
	requestSize  = 10304
	decisionSize = 6208
)

func makeFolder(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// makeFile of zeroes, unless it is there.
func makeFile(path string, size int64, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Chmod(mode), file.Truncate(size), file.Close())
}

// closeSharedFolder that agents before this one mounted writable into all containers. Those that still run under the
// library of that time have their files in it, and need no new ones.
func (b *Backend) closeSharedFolder() error {
	err := os.Chmod(filepath.Join(b.Dir, "cards"), 0o755) //nolint:gosec // any user reads it
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// requestFolder has a file of three pages for each card.
var requestFolder = backend.Tmpfs{MB: 1, Inodes: 64, Mode: 0o755}

// runFolder has the container's file (0.7 MB) and a socket for each of its processes, of which the library counts 1,024.
var runFolder = backend.Tmpfs{MB: 16, Inodes: 2 * maxSockets, Mode: 0o777}

// isEmpty says whether there is nothing in a folder; of a full one no more than an entry is read.
func isEmpty(dir string) bool {
	folder, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer func() { _ = folder.Close() }()
	names, _ := folder.Readdirnames(1)
	return len(names) == 0
}

// clear away what a container wrote. It is unmounted first: what a tenant left there is not walked through.
func (b *Backend) clear(id string) error {
	for _, folder := range []string{b.run(id), b.requests(id)} {
		if err := backend.Unmount(folder); err != nil {
			return err
		}
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(b.share(id), "etc", "turns"))
}

// Release removes the share's folder.
func (b *Backend) Release(ctx context.Context, id string) error {
	if err := b.detach(ctx, id); err != nil {
		return err
	}
	if err := b.clear(id); err != nil {
		return err
	}
	return os.RemoveAll(b.share(id))
}

// Held lists the folders that are there.
func (b *Backend) Held(context.Context) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(b.Dir, "shares"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, err
}

func (b *Backend) share(id string) string { return filepath.Join(b.Dir, "shares", filepath.Base(id)) }

// requests is the folder of the files in which a share's container asks for turns.
func (b *Backend) requests(id string) string { return filepath.Join(b.share(id), "requests") }

// RunFolder is the one that a share's container writes to: what is in it is not to be believed.
func (b *Backend) RunFolder(id string) string { return b.run(id) }

// run is the folder that a share's container writes to.
func (b *Backend) run(id string) string { return filepath.Join(b.share(id), "run") }

func mount(host, container, access string) *specs.Mount {
	return &specs.Mount{HostPath: host, ContainerPath: container, Options: []string{access, "nosuid", "nodev", "bind"}}
}

// onOff are the parameters of a class that the library knows, as they are.
var onOff = []string{"swap", "oversubscribe"}

// Limits is the library's file for a share.
func Limits(s *share.Share) ([]byte, error) {
	var text bytes.Buffer
	if !isWord(string(s.UID) + "/" + s.Container) {
		return nil, fmt.Errorf("the container is %q of pod %q", s.Container, s.UID)
	}
	fmt.Fprintf(&text, "elastic-gpu 1\ncontainer %s/%s\n", s.UID, s.Container)
	idle, err := s.IdleAfter()
	if err != nil {
		return nil, err
	}
	if idle > 0 && s.Parameters["swap"] == "off" {
		return nil, errors.New("the class's parameter idle takes swap: leave out swap, or write on")
	}
	for _, name := range onOff {
		value := s.Parameters[name]
		if name == "swap" && idle > 0 {
			value = "on"
		}
		switch value {
		case "":
		case "on", "off":
			fmt.Fprintf(&text, "%s %s\n", name, value)
		default:
			return nil, fmt.Errorf("the class's parameter %s is %q: write on or off", name, value)
		}
	}
	lend := s.Parameters["lend"]
	switch lend {
	case "":
		lend = "off"
	case "on", "off":
	default:
		return nil, fmt.Errorf("the class's parameter lend is %q: write on or off", lend)
	}
	latency, err := latencyOf(s)
	if err != nil {
		return nil, err
	}
	sharing, err := sharingOf(s, lend)
	if err != nil {
		return nil, err
	}
	if sharing != "" {
		latency = ""
	}
	for _, c := range s.Cards {
		if err := checkPart(&c); err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "device %s memory %d compute %.2f lend %s%s%s\n", c.UUID, c.MemoryMB<<20, c.Percent, lend, latency, sharing)
	}
	return text.Bytes(), nil
}

// checkPart refuses a part of a card that cannot be.
func checkPart(c *share.Card) error {
	// It is a word of the file, and a file's name.
	if !isWord(c.UUID) || c.UUID[0] == '.' || strings.Contains(c.UUID, "/") {
		return fmt.Errorf("card %d has the UUID %q", c.Index, c.UUID)
	}
	if !(c.Percent >= 0 && c.Percent <= 100) || c.MemoryMB < 0 || c.MemoryMB > math.MaxInt64>>20 {
		return fmt.Errorf("a share of %g percent and %d MiB of card %d", c.Percent, c.MemoryMB, c.Index)
	}
	return nil
}

// latencyOf a share, in the file's words.
func latencyOf(s *share.Share) (string, error) {
	switch latency := s.Parameters["latency"]; latency {
	case "", "auto":
		return "", nil // a library from before it was there reads the file, too
	case "low", "throughput":
		return " latency " + latency, nil
	default:
		return "", fmt.Errorf("the class's parameter latency is %q: write auto, low or throughput", latency)
	}
}

// sharingOf a share, in the file's words. In space there are no turns to lend, to have soon, or to leave the card in.
func sharingOf(s *share.Share, lend string) (string, error) {
	switch sharing := s.Parameters["sharing"]; {
	case sharing == "" || sharing == egpu.SharingTime:
		return "", nil
	case sharing != egpu.SharingSpace:
		return "", fmt.Errorf("the class's parameter sharing is %q: write %s or %s", sharing, egpu.SharingTime, egpu.SharingSpace)
	case lend == "on" || s.Parameters["latency"] == "low" || s.Parameters["oversubscribe"] == "on":
		return "", errors.New("the class shares cards in space, where nobody takes turns: leave out lend, latency and oversubscribe")
	case len(s.Cards) != 1:
		return "", fmt.Errorf("the class shares cards in space: a container has one card then, and not %d", len(s.Cards))
	}
	return " sharing space", nil
}

// isWord says that a text is one word of the library's file.
func isWord(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// replace a file at once, so that no reader sees half of it. One that is right is left alone.
func replace(path string, data []byte) error {
	if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, data) {
		return nil
	}
	if err := os.WriteFile(path+".new", data, 0o644); err != nil { //nolint:gosec // containers read it as any user
		return err
	}
	return os.Rename(path+".new", path)
}
