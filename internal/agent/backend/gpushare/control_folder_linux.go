package gpushare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elastic-ai/elastic/internal/agent/share"
)

// controlFolder has the sockets of a share's processes. The tenant writes there: it may hold links, files and folders
// in their place, and change while it is read. So it is opened once, and everything in it from there.
type controlFolder struct{ dir *os.File }

// errNoSocket is what is named as a socket and is none.
var errNoSocket = errors.New("it is not a socket")

// beneath: what is opened is in the tenant's folder, and not by way of a link.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV

// openControl of the folder that a share's container writes to.
func openControl(run string) (*controlFolder, error) {
	root, err := unix.Open(run, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: run, Err: err}
	}
	defer func() { _ = unix.Close(root) }()
	fd, err := unix.Openat2(root, "control", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: run + "/control", Err: err}
	}
	return &controlFolder{os.NewFile(uintptr(fd), run+"/control")}, nil
}

func (f *controlFolder) close() { _ = f.dir.Close() }

var socketName = regexp.MustCompile(`^[0-9]{1,10}\.sock$`)

// names of sockets, at most so many. Of a folder that is full of other things, the rest is not read.
func (f *controlFolder) names() ([]string, error) {
	if _, err := f.dir.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	all, err := f.dir.Readdirnames(2 * maxSockets)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(name string) bool { return !socketName.MatchString(name) })
	slices.Sort(all)
	return all[:min(len(all), maxSockets)], nil
}

// dial a socket by the file it is, not by its name, which may have become another's.
func (f *controlFolder) dial(ctx context.Context, name string) (*net.UnixConn, error) {
	fd, err := unix.Openat2(int(f.dir.Fd()), name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var status unix.Stat_t
	if err := unix.Fstat(fd, &status); err != nil {
		return nil, err
	}
	if status.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, errNoSocket
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	return connection.(*net.UnixConn), nil
}

// removeAbandoned removes a socket on which no process has listened for a while: the tenant's folder is small.
func (f *controlFolder) removeAbandoned(name string) {
	var status unix.Stat_t
	if unix.Fstatat(int(f.dir.Fd()), name, &status, unix.AT_SYMLINK_NOFOLLOW) != nil || status.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return
	}
	if time.Since(time.Unix(status.Mtim.Unix())) > abandonedAfter {
		_ = unix.Unlinkat(int(f.dir.Fd()), name, 0)
	}
}

// peer is the process at the other end of a connection.
type peer struct {
	pid int
	age time.Duration
}

// peerOf a connection, if it is one of the share's container.
func (b *Backend) peerOf(connection *net.UnixConn, s *share.Share) (*peer, error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return nil, err
	}
	var credentials *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, failed
	}
	pid := int(credentials.Pid)
	if pid == 0 {
		return nil, errors.New("its pid is not seen from here: the agent must share the node's pids (hostPID)")
	}
	inPod := b.InPod
	if inPod == nil {
		inPod = InPod
	}
	age, err := ageOf(pid) // before it is known whose it is: a pid that is given anew is younger
	if err != nil {
		return nil, err
	}
	ours, err := inPod(pid, s.UID)
	if err != nil {
		return nil, err
	}
	if !ours {
		return nil, fmt.Errorf("process %d, which listens there, is not of pod %s", pid, s.Pod)
	}
	return &peer{pid, age}, nil
}
