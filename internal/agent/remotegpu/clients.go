package remotegpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Engine carries calls of programs to a server beside the card. This is what one needs:
//
//   - its server is a program in an image, which the GPU scheduler's configuration names. It runs in a pod with the
//     claim's share, serves one claim, and listens on the Unix socket that its last argument names;
//   - its client is files on each node, which are mounted into the program's container, and find the server by the
//     line "unix:PATH" in /etc/elastic-gpu/remote;
//   - a server is healthy that accepts a connection. Bytes are carried as they are; a connection may break at any
//     byte, and to resume is the engine's affair.
type Engine struct {
	// Files by their path in the container: where they are on the node.
	Files map[string]string
}

// Where things are in the program's container, and where the server's container has its socket: in the folder that
// the library has there anyway.
const (
	addressFile  = "/etc/elastic-gpu/remote"
	socketFolder = "/run/elastic-gpu-remote"
	socketName   = "socket"
	ServerSocket = "remote.sock"
)

// Clients is the backend of containers whose cards are on another node. It has a folder per container below Dir:
//
//	shares/ID        where it goes
//	links/ID/remote  where the container's programs find the socket
//	links/ID/run/    the socket, which the agent makes again when it starts
type Clients struct {
	Dir     string
	Engines map[string]Engine
	Relay   *Relay
}

// Name of the backend.
func (*Clients) Name() string { return "remote" }

// Prepare opens the container's way to its card, and says what to mount.
func (c *Clients) Prepare(_ context.Context, s *share.Share) (*specs.ContainerEdits, error) {
	if s.Remote == nil {
		return nil, errors.New("its cards are not those of another node")
	}
	engine, known := c.Engines[s.Remote.Engine]
	if !known {
		return nil, fmt.Errorf("the class's parameter engine is %q: this node has %v", s.Remote.Engine, slices.Sorted(maps.Keys(c.Engines)))
	}
	for path, file := range engine.Files {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("engine %s has no %s on this node: %w", s.Remote.Engine, path, err)
		}
	}
	if err := backend.Record(c.records(), s.ID, s.Remote); err != nil {
		return nil, err
	}
	if err := c.open(s.ID, *s.Remote); err != nil {
		return nil, err
	}
	edits := &specs.ContainerEdits{Mounts: []*specs.Mount{
		mount(filepath.Join(c.link(s.ID), "remote"), addressFile), mount(c.run(s.ID), socketFolder),
	}}
	for _, path := range slices.Sorted(maps.Keys(engine.Files)) {
		edits.Mounts = append(edits.Mounts, mount(engine.Files[path], path))
	}
	return edits, nil
}

// open the folder and the socket of a container.
func (c *Clients) open(id string, to share.Remote) error {
	if err := os.MkdirAll(c.run(id), 0o755); err != nil { //nolint:gosec // containers read it as any user
		return err
	}
	line := "unix:" + socketFolder + "/" + socketName + "\n"
	if err := os.WriteFile(filepath.Join(c.link(id), "remote"), []byte(line), 0o644); err != nil { //nolint:gosec // as above
		return err
	}
	return c.Relay.Open(id, filepath.Join(c.run(id), socketName), to)
}

// Resume what an agent before this one had open: programs come back to it by themselves.
func (c *Clients) Resume(ctx context.Context) error {
	ids, err := c.Held(ctx)
	for _, id := range ids {
		var to share.Remote
		if again := backend.Recall(c.records(), id, &to); again != nil {
			err = errors.Join(err, again)
			continue
		}
		err = errors.Join(err, c.open(id, to))
	}
	return err
}

// Release closes a container's way.
func (c *Clients) Release(_ context.Context, id string) error {
	c.Relay.Close(filepath.Base(id))
	if err := os.RemoveAll(c.link(id)); err != nil {
		return err
	}
	return backend.Forget(c.records(), id)
}

// Held lists the containers that have one.
func (c *Clients) Held(context.Context) ([]string, error) { return backend.Recorded(c.records()) }

func (c *Clients) records() string { return filepath.Join(c.Dir, "shares") }

func (c *Clients) link(id string) string { return filepath.Join(c.Dir, "links", filepath.Base(id)) }

func (c *Clients) run(id string) string { return filepath.Join(c.link(id), "run") }

// mount for reading alone: a socket can be connected to all the same.
func mount(node, container string) *specs.Mount {
	return &specs.Mount{HostPath: node, ContainerPath: container, Options: []string{"ro", "nosuid", "nodev", "bind"}}
}
