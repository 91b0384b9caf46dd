package local

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// Ports are chosen below those that the kernel gives to outgoing connections (from 32768 on Linux): one
// of those may be gone before the program that it was chosen for listens.
const (
	firstPort = 20000
	lastPort  = 32000
)

// given addresses with their locks, which last as long as the process.
var given sync.Map

// FreeAddress is a loopback address without a listener, and that no other cluster on this machine is given
// while this process runs.
func FreeAddress() (string, error) {
	dir := filepath.Join(os.TempDir(), "elastic-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		release, err := lockFile(filepath.Join(dir, strconv.Itoa(port)))
		if errors.Is(err, errRunning) {
			continue
		}
		if err != nil {
			return "", err
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		listener, err := net.Listen("tcp", address)
		if err != nil {
			release()
			continue // in use
		}
		given.Store(address, release)
		return address, listener.Close()
	}
	return "", fmt.Errorf("no port between %d and %d is free", firstPort, lastPort)
}
