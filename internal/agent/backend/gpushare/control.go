package gpushare

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"
)

// Process under the library, as it says itself.
type Process struct {
	// Socket it listens on; a process of that name is the same one as long as it is there.
	Socket  string
	Out     bool // its memory is on the host
	Devices []Device
}

// Device is what a process, or its whole container, has of a card.
type Device struct {
	UUID string
	// Limit and Used are the container's; the others are the process's own.
	Limit, Used, Held, Overhead, Swapped int64
	Compute                              float64
	BusyNS                               int64 `json:"busy_ns"`
	WaitedNS                             int64 `json:"waited_ns"`
}

// answerTimeout of a process: it may be stopped.
const answerTimeout = 2 * time.Second

// Sockets of a share's processes; those of the dead may be among them.
func (b *Backend) Sockets(id string) []string {
	sockets, _ := filepath.Glob(filepath.Join(b.share(id), "run", "control", "*.sock")) // the pattern is good
	return sockets
}

// Processes of a share that use its cards. Each gets the pid by which the driver knows it, so that what
// it uses beyond its requests is counted.
func (b *Backend) Processes(ctx context.Context, id string) ([]Process, error) {
	var all []Process
	for _, socket := range b.Sockets(id) {
		answer := struct {
			answer
			Process
		}{}
		if err := ask(ctx, socket, answerTimeout, "hostpid", &answer); err != nil {
			answer.Reason = ""
			if err := ask(ctx, socket, answerTimeout, "stats", &answer); err != nil {
				continue // it has ended, or is not one of ours
			}
		}
		answer.Socket = socket
		all = append(all, answer.Process)
	}
	return all, nil
}

// Out moves the memory of a share's processes to the host, all or none, and says how much that is.
func (b *Backend) Out(ctx context.Context, id string) (int64, error) {
	return b.move(ctx, id, "out", "in")
}

// In brings it back.
func (b *Backend) In(ctx context.Context, id string) (int64, error) { return b.move(ctx, id, "in", "") }

// moving takes its time: the bus carries some 50 GB a second.
const moving = 2 * time.Minute

func (b *Backend) move(ctx context.Context, id, how, back string) (int64, error) {
	processes, err := b.Processes(ctx, id)
	if err != nil {
		return 0, err
	}
	if how == "out" && len(processes) == 0 {
		return 0, errors.New("nothing of it is on a card, and what came to be there now would not be held back")
	}
	var bytes int64
	for i, p := range processes {
		moved := struct {
			answer
			Bytes int64
		}{}
		if err := ask(ctx, p.Socket, moving, how, &moved); err != nil {
			if back != "" {
				for _, done := range processes[:i] {
					err = errors.Join(err, ask(ctx, done.Socket, moving, back, &answer{}))
				}
			}
			return 0, err
		}
		bytes += moved.Bytes
	}
	return bytes, nil
}

// answer is what every reply begins with.
type answer struct {
	OK       bool
	Protocol int
	Reason   string
}

func (a *answer) refused() error {
	switch {
	case a.Reason != "":
		return errors.New(a.Reason)
	case !a.OK || a.Protocol > protocol:
		return fmt.Errorf("it speaks version %d, we speak %d", a.Protocol, protocol)
	}
	return nil
}

const protocol = 1

// ask a process one thing. A process that does not speak our version is left alone.
func ask(ctx context.Context, socket string, wait time.Duration, request string, into interface{ refused() error }) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	hello := &answer{}
	if err := exchange(ctx, socket, fmt.Sprintf("hello %d", protocol), hello); err != nil {
		return err
	}
	return exchange(ctx, socket, request, into)
}

// exchange one line for another.
func exchange(ctx context.Context, socket, request string, into interface{ refused() error }) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = connection.SetDeadline(deadline)
	}
	pid, err := peer(connection.(*net.UnixConn))
	if err != nil {
		return err
	}
	if request == "hostpid" {
		request = fmt.Sprintf("hostpid %d", pid)
		if pid == 0 {
			request = "stats" // we do not see its pid: what it uses beyond requests stays an estimate
		}
	}
	if _, err := connection.Write([]byte(request + "\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil && line == "" {
		return fmt.Errorf("%s: no answer to %q: %w", filepath.Base(socket), request, err)
	}
	if err := json.Unmarshal([]byte(strings.TrimSpace(line)), into); err != nil {
		return fmt.Errorf("%s: %q: %w", filepath.Base(socket), line, err)
	}
	return into.refused()
}
