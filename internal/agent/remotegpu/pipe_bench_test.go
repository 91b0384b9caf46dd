package remotegpu

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/elastic-ai/elastic/internal/agent/share"
)

// betweenSockets is two agents before a server that does with a connection what serve says; dial makes one.
func betweenSockets(b *testing.B, serve func(net.Conn)) (dial func() net.Conn) {
	b.Helper()
	dir, err := os.MkdirTemp("", "remote-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: b, dir: dir, pod: identity(b, "pod-node"), server: filepath.Join(dir, "server")}
	listener, err := net.Listen("unix", w.server)
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(connection)
		}
	}()
	w.startGateway()
	w.startRelay()
	b.Cleanup(func() { w.clients.Relay.End(); w.closeGateway(); _ = listener.Close() })
	if err := w.clients.Relay.Open("1", filepath.Join(dir, "client"), share.Remote{Claim: claim, Engine: engine}); err != nil {
		b.Fatal(err)
	}
	return func() net.Conn {
		connection, err := net.Dial("unix", filepath.Join(dir, "client"))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = connection.Close() })
		return connection
	}
}

func processorTime(b *testing.B) int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}

const block = 1 << 20

// BenchmarkCopies is large copies through two agents, both ends included: how fast, and what of a processor a byte takes.
func BenchmarkCopies(b *testing.B) {
	send := func(c net.Conn, blocks int) {
		buffer := make([]byte, block)
		for range blocks {
			if _, err := c.Write(buffer); err != nil {
				return
			}
		}
	}
	receive := func(c net.Conn, blocks int) {
		buffer := make([]byte, block)
		for range blocks {
			if _, err := io.ReadFull(c, buffer); err != nil {
				return
			}
		}
	}
	for _, connections := range []int{1, 4} {
		for name, to := range map[string]bool{"to": true, "from": false} {
			b.Run(fmt.Sprintf("%s/%d", name, connections), func(b *testing.B) {
				each := b.N/connections + 1
				dial := betweenSockets(b, func(c net.Conn) {
					one := make([]byte, 1)
					if _, err := io.ReadFull(c, one); err != nil {
						return
					}
					if to {
						receive(c, each)
					} else {
						send(c, each)
					}
					_, _ = c.Write(one)
				})
				var all []net.Conn
				for range connections {
					all = append(all, dial())
				}
				b.SetBytes(block)
				b.ResetTimer()
				before := processorTime(b)
				var wait sync.WaitGroup
				for _, c := range all {
					wait.Go(func() {
						send1, one := []byte{1}, make([]byte, 1)
						_, _ = c.Write(send1)
						if to {
							send(c, each)
						} else {
							receive(c, each)
						}
						if _, err := io.ReadFull(c, one); err != nil {
							b.Error(err)
						}
					})
				}
				wait.Wait()
				b.StopTimer()
				b.ReportMetric(float64(processorTime(b)-before)/float64(each*connections*block), "cpu-ns/B")
			})
		}
	}
}

// BenchmarkAnswers is a call that waits for its answer.
func BenchmarkAnswers(b *testing.B) {
	dial := betweenSockets(b, func(c net.Conn) {
		buffer := make([]byte, 64)
		for {
			if _, err := io.ReadFull(c, buffer); err != nil {
				return
			}
			if _, err := c.Write(buffer); err != nil {
				return
			}
		}
	})
	c, buffer := dial(), make([]byte, 64)
	for b.Loop() {
		if _, err := c.Write(buffer); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buffer); err != nil {
			b.Fatal(err)
		}
	}
}
