package gpushare

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/tenantfolder"
)

// Process under the library, as it says itself. It is the tenant's: what it says is bounded, and believed of its own
// container alone.
type Process struct {
	// Socket it listens on, and the pid by which the node knows it; both together are one process.
	Socket string
	PID    int `json:"-"`
	// Age of the process by the kernel's word, not its own.
	Age time.Duration `json:"-"`
	// Silent says that it did not answer this time, or nothing to believe; the rest is not known then.
	Silent bool `json:"-"`
	Out    bool // its memory is on the host
	// Wanted says that it wants its memory back: a call waits for it.
	Wanted bool
	// IdleNS is how long it has not used its cards.
	IdleNS int64 `json:"idle_ns"`
	// Immovable is why what it has could not be moved now; empty if it could, or is out.
	Immovable string
	Devices   []Device
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

// Bounds on what a tenant can have the agent do. A share that goes beyond them is known less of, and no other is.
const (
	// maxSockets of a share that are asked: the processes that the library counts (MAX_PROCESSES).
	maxSockets = 1024
	// maxDevices of an answer (MAX_DEVICES), and maxAnswer its bytes: twice what the library's longest has.
	maxDevices = 16
	maxAnswer  = 16 << 10
	// lanes are how many processes of one share are asked at a time.
	lanes = 8
	// answerTimeout of a process: it may be stopped. shareTimeout of all that are asked how they are.
	answerTimeout = 2 * time.Second
	shareTimeout  = 3 * time.Second
	// moveTimeout of all that are moved: the bus carries some 50 GB a second.
	moveTimeout = 2 * time.Minute
	// abandonedAfter is when a socket that no process listens on is removed. A process listens as soon as it has one.
	abandonedAfter = time.Minute
)

// Sockets of a share's processes; those of the dead may be among them.
func (b *Backend) Sockets(id string) []string {
	folder, err := openControl(b.run(id))
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, _ := sockets(folder)
	for i := range names {
		names[i] = id + "/" + names[i]
	}
	return names
}

// Processes of a share that use its cards. Each gets the pid by which the driver knows it, so that what
// it uses beyond its requests is counted.
func (b *Backend) Processes(ctx context.Context, s *share.Share) ([]Process, error) {
	folder, err := openControl(b.run(s.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // none has used a card yet
	}
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return b.processes(ctx, folder, s)
}

func (b *Backend) processes(ctx context.Context, folder *tenantfolder.Folder, s *share.Share) ([]Process, error) {
	names, err := sockets(folder)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	found := make([]*Process, len(names))
	inLanes(len(names), func(i int) { found[i] = b.describe(ctx, folder, s, names[i]) })
	var all []Process
	for _, p := range found {
		if p != nil {
			all = append(all, *p)
		}
	}
	return all, nil
}

// inLanes does something for each of some processes, a few at a time. A defect is one of the caller's.
func inLanes(count int, do func(i int)) {
	defects := make(chan any, lanes)
	var next atomic.Int64
	var doing sync.WaitGroup
	for range min(lanes, count) {
		doing.Go(func() {
			defer func() { defects <- recover() }()
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	doing.Wait()
	close(defects)
	for defect := range defects {
		if defect != nil {
			panic(defect) // where it is contained, with the share that it concerns
		}
	}
}

// describe the process behind a socket; nil if there is none.
func (b *Backend) describe(ctx context.Context, folder *tenantfolder.Folder, s *share.Share, name string) *Process {
	reply := &description{}
	peer, err := b.ask(ctx, folder, s, name, answerTimeout, "hostpid", reply)
	if refusal := refusal(""); errors.As(err, &refusal) {
		reply = &description{} // a library that takes no pid, or not from us
		peer, err = b.ask(ctx, folder, s, name, answerTimeout, "stats", reply)
	}
	id := s.ID + "/" + name
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		folder.RemoveSocket(name, abandonedAfter) // the tenant's folder is small
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, tenantfolder.ErrNoSocket):
		return nil
	case err != nil:
		return &Process{Socket: id, Silent: true}
	}
	reply.Socket, reply.PID, reply.Age = id, peer.pid, peer.age
	return &reply.Process
}

// Out moves the memory of a share's processes to the host, all or none, and says how much that is. It is what they say:
// whether they have left the card is the driver's to say.
func (b *Backend) Out(ctx context.Context, s *share.Share) (int64, error) {
	return b.move(ctx, s, "out", "in")
}

// ErrUnanswered says that the memory of those that answered was brought back, and that others did not answer: they may wait for
// theirs still.
var ErrUnanswered = errors.New("did not answer, and is asked again")

// In brings it back. With ErrUnanswered it is to be asked again.
func (b *Backend) In(ctx context.Context, s *share.Share) (int64, error) {
	return b.move(ctx, s, "in", "")
}

func (b *Backend) move(ctx context.Context, s *share.Share, how, back string) (int64, error) {
	folder, err := openControl(b.run(s.ID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	var listening []Process
	if err == nil {
		defer folder.Close()
		if listening, err = b.processes(ctx, folder, s); err != nil {
			return 0, err
		}
	}
	var names []string
	silent := 0
	for _, p := range listening {
		if p.Silent {
			silent++
		} else {
			names = append(names, strings.TrimPrefix(p.Socket, s.ID+"/"))
		}
	}
	if how == "out" && len(names) == 0 {
		return 0, errors.New("nothing of it is on a card, and what came to be there now would not be held back")
	}
	// Those that say so ahead refuse for all, before anything moves.
	for _, p := range listening {
		if how == "out" && !p.Silent && p.Immovable != "" {
			return 0, refusal(p.Immovable)
		}
	}
	if how == "out" {
		err = b.hold(ctx, folder, s, names)
	}
	var bytes int64
	var failed string
	if err == nil {
		bytes, failed, err = b.moveAll(ctx, folder, s, names, how)
	}
	if err != nil && back != "" {
		// All of them: those that were not asked are held back, and who gave no answer may be on its way. It is told when
		// it is there.
		err = errors.Join(err, b.undo(ctx, folder, s, names, back, failed))
	}
	if err == nil && how == "in" && silent > 0 {
		err = fmt.Errorf("%d of %d processes: %w", silent, len(listening), ErrUnanswered)
	}
	return bytes, err
}

// moveAll processes, one after the other, and say how much that was, or which one failed.
func (b *Backend) moveAll(ctx context.Context, folder *tenantfolder.Folder, s *share.Share, names []string, how string) (int64, string, error) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	var bytes, most int64
	for _, c := range s.Cards {
		most += c.MemoryMB << 20
	}
	for _, name := range names {
		moved := struct {
			answer
			Bytes int64
		}{}
		if _, err := b.ask(ctx, folder, s, name, moveTimeout, how, &moved); err != nil {
			return 0, name, err
		}
		bytes = min(bytes+min(max(moved.Bytes, 0), most), most)
	}
	return bytes, "", nil
}

// undo a move of some processes; of the one that failed enough was said.
func (b *Backend) undo(ctx context.Context, folder *tenantfolder.Folder, s *share.Share, names []string, back, silent string) error {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	var failed error
	for _, name := range names {
		if _, err := b.ask(ctx, folder, s, name, moveTimeout, back, &answer{}); name != silent {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// answer is what every reply begins with.
type answer struct {
	OK       bool
	Protocol int
	Reason   string
}

// refusal of a process to do what it was asked, in its words.
type refusal string

func (r refusal) Error() string { return string(r) }

func (a *answer) check() error {
	switch {
	case a.Reason != "":
		return refusal(shorten(a.Reason))
	case !a.OK || a.Protocol > protocol:
		return fmt.Errorf("it speaks version %d, we speak %d", a.Protocol, protocol)
	}
	return nil
}

// description is the reply to stats and hostpid.
type description struct {
	answer
	Process
}

func (d *description) check() error {
	if err := d.answer.check(); err != nil {
		return err
	}
	if len(d.Devices) > maxDevices {
		return fmt.Errorf("it says that it uses %d cards", len(d.Devices))
	}
	if d.IdleNS < 0 {
		return errors.New("it says that it will be idle")
	}
	d.Immovable = shorten(d.Immovable)
	seen := map[string]bool{}
	for _, c := range d.Devices {
		if seen[c.UUID] || min(c.Limit, c.Used, c.Held, c.Overhead, c.Swapped, c.BusyNS, c.WaitedNS) < 0 {
			return errors.New("what it says of its cards cannot be")
		}
		seen[c.UUID] = true
	}
	return nil
}

const protocol = 1

// reply of a process that can be checked for what no process of ours says.
type reply interface{ check() error }

// ask a process one thing. A process that does not speak our version is left alone.
func (b *Backend) ask(ctx context.Context, folder *tenantfolder.Folder, s *share.Share, name string, wait time.Duration, request string, into reply) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if _, err := b.exchange(ctx, folder, s, name, fmt.Sprintf("hello %d", protocol), &answer{}); err != nil {
		return nil, err
	}
	return b.exchange(ctx, folder, s, name, request, into)
}

// exchange one line for another, with a process of the share's container.
func (b *Backend) exchange(ctx context.Context, folder *tenantfolder.Folder, s *share.Share, name, request string, into reply) (*peer, error) {
	connection, err := folder.Dial(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = connection.Close() }()
	// Also one who answers a byte at a time is hung up on when the time is over.
	stop := context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(0, 0)) })
	defer stop()
	who, err := b.peerOf(connection, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if request == "hostpid" {
		request = fmt.Sprintf("hostpid %d", who.pid)
	}
	if _, err := connection.Write([]byte(request + "\n")); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	line, err := readLine(connection)
	if err != nil {
		return nil, fmt.Errorf("%s: no answer to %q: %w", name, request, err)
	}
	if err := decode(line, into); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return who, nil
}

// readLine is one line of bounded length.
func readLine(connection net.Conn) ([]byte, error) {
	line, err := bufio.NewReaderSize(connection, maxAnswer).ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("it is longer than %d bytes", maxAnswer)
	}
	if err != nil && len(line) == 0 {
		return nil, err
	}
	return line, nil
}

// decode an answer, and believe nothing that cannot be.
func decode(line []byte, into reply) error {
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("it answers %q: %s", shorten(string(line)), shorten(err.Error()))
	}
	return into.check()
}

// maxWords is how much of a tenant's text goes into our logs and conditions.
const maxWords = 200

// shorten a tenant's text to one line that can be read.
func shorten(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text[:min(len(text), maxWords)])
	return strings.TrimSpace(text)
}
