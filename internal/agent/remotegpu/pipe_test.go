package remotegpu

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

func pair(t *testing.T) (one, other net.Conn) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if one, err = net.Dial("unix", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if other, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = one.Close(), other.Close() })
	return one, other
}

// What goes in comes out, calls and copies in any order, also what was on its way when the sender ended.
func TestEveryByteIsCarried(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		sent := make([]byte, 4<<20)
		for i := range sent {
			sent[i] = byte(random.Uint32())
		}
		in, from := pair(t)
		to, out := pair(t)
		var all sync.WaitGroup
		all.Go(func() { pipe(t.Context(), from, to) })
		all.Go(func() {
			defer func() { _ = in.Close() }()
			for left := sent; len(left) > 0; {
				n := 1 + random.IntN(100)
				if random.IntN(3) == 0 {
					n = 1 + random.IntN(600<<10)
				}
				n = min(n, len(left))
				if _, err := in.Write(left[:n]); err != nil {
					t.Error(err)
					return
				}
				left = left[n:]
			}
		})
		received, err := io.ReadAll(out)
		all.Wait()
		if err != nil || !bytes.Equal(received, sent) {
			t.Fatalf("seed %d: %d of %d bytes came, or others: %v", seed, len(received), len(sent), err)
		}
	}
}

// A call that comes while nothing follows it is answered, right after a copy, too.
func TestNothingIsHeldBack(t *testing.T) {
	program, container := pair(t)
	server, beside := pair(t)
	go pipe(t.Context(), container, server)
	go func() { // it answers each call with a byte, however long the call is
		head := make([]byte, 3)
		for {
			if _, err := io.ReadFull(beside, head); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, beside, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
				return
			}
			if _, err := beside.Write(head[:1]); err != nil {
				return
			}
		}
	}()
	for i := range 300 {
		n := []int{0, 1, 40, 1 << 20, 16 << 10, 70 << 10, 256 << 10, 3 << 20}[i%8]
		call := append([]byte{byte(n >> 16), byte(n >> 8), byte(n)}, make([]byte, n)...)
		if _, err := program.Write(call); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(program, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// Who takes nothing any more ends both sides in the middle of a copy.
func TestACopyThatNobodyTakesEnds(t *testing.T) {
	for range 20 {
		in, from := pair(t)
		to, out := pair(t)
		var all sync.WaitGroup
		all.Go(func() { pipe(t.Context(), from, to) })
		all.Go(func() {
			for {
				if _, err := in.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		})
		if _, err := io.CopyN(io.Discard, out, 2<<20); err != nil {
			t.Fatal(err)
		}
		_ = out.Close()
		all.Wait()
	}
}
