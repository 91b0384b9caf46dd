package gpushare

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/elastic-ai/elastic/internal/agent/share"
)

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
