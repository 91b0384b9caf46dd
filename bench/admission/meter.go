package main

import (
	"runtime"
	"runtime/metrics"
	"syscall"
	"time"
)

// cost is CPU time of the whole process and objects allocated.
type cost struct {
	cpu    time.Duration
	allocs uint64
}

func (c cost) minus(d cost) cost {
	return cost{max(0, c.cpu-d.cpu), c.allocs - min(c.allocs, d.allocs)}
}

func (c cost) plus(d cost) cost { return cost{c.cpu + d.cpu, c.allocs + d.allocs} }

func spent() cost {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(sample)
	return cost{time.Duration(u.Utime.Nano() + u.Stime.Nano()), sample[0].Value.Uint64()}
}

// measure is what f costs, starting on a heap without anyone else's garbage.
func measure(f func() error) (cost, error) {
	runtime.GC()
	before := spent()
	err := f()
	return spent().minus(before), err
}
