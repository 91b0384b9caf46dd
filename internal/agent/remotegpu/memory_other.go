//go:build !linux

package remotegpu

import "net"

func carryMemory(container, server *net.UnixConn, buffer []byte) { carry(container, server, buffer) }
