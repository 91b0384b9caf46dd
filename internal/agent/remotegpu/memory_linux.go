package remotegpu

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// carryMemory carries bytes of a server to a container of its node, and with them files of memory that both are to share:
// a server and its client then need nobody between. Files of any other kind are not handed on, nor what a container sends.
func carryMemory(container, server *net.UnixConn, buffer []byte) {
	control := make([]byte, syscall.CmsgSpace(4)) // for one file: the system closes what more there is
	for {
		n, controls, _, _, err := server.ReadMsgUnix(buffer, control)
		if n == 0 || err != nil {
			return
		}
		sent := 0
		if controls > 0 {
			if sent, err = sendMemory(container, buffer[:n], control[:controls]); err != nil {
				return
			}
		}
		if _, err := container.Write(buffer[sent:n]); err != nil {
			return
		}
	}
}

// sendMemory sends bytes with the files of memory among what came with them, and says how many it sent.
func sendMemory(to *net.UnixConn, bytes, control []byte) (int, error) {
	var files []int
	messages, err := syscall.ParseSocketControlMessage(control)
	for i := range messages {
		if got, err := syscall.ParseUnixRights(&messages[i]); err == nil {
			files = append(files, got...)
		}
	}
	defer func() {
		for _, f := range files {
			_ = syscall.Close(f)
		}
	}()
	if err != nil {
		return 0, err
	}
	var memory []int
	for _, f := range files {
		// Files of memory alone can be sealed, and one that can be cut would end who reads it.
		if seals, err := unix.FcntlInt(uintptr(f), unix.F_GET_SEALS, 0); err == nil && seals&unix.F_SEAL_SHRINK != 0 {
			memory = append(memory, f)
		}
	}
	if len(memory) == 0 {
		return 0, nil
	}
	sent, _, err := to.WriteMsgUnix(bytes, syscall.UnixRights(memory...), nil)
	return sent, err
}
