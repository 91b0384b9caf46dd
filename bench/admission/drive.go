package main

import (
	"container/heap"
	"fmt"
)

// side is an engine under test, told what happens and asked what to do.
type side interface {
	arrive(job int32, now millis)
	// finish: an admitted workload has run to its end.
	finish(job int32, now millis)
	// release: an evicted workload has let go and is pending again.
	release(job int32, now millis)
	// decide answers with one decision; again says that there may be more to decide
	// although nothing else happens.
	decide(now millis) (d decision, again bool)
	// wakeAt is when the side wants to be asked although nothing happened; 0: never.
	wakeAt() millis
	// empty fails unless nothing is pending and no quota is held.
	empty() error
}

// decision lists jobs; its slices are valid until the next one.
type decision struct {
	admit, evict []int32
}

// grace is how long an evicted workload holds on to its quota.
const grace = beat

// outcome is what one run of a side came to.
type outcome struct {
	admissions, evictions, decisions int
	// early counts admissions onto quota that evicted workloads still held.
	early int
	ended millis
}

type jobState uint8

const (
	pending jobState = iota
	running
	evicting
	finished
)

type driver struct {
	w        *work
	s        side
	state    []jobState
	epoch    []uint32 // admissions of a job so far: an older finish is void
	used     []int64  // per tree, thousandths of CPU
	leaving  []int64  // of that, held by evicted workloads
	finishes finishHeap
	releases []release // in order: all have the same grace
	outcome  outcome
}

type finish struct {
	at    millis
	job   int32
	epoch uint32
}

type release struct {
	at  millis
	job int32
}

type finishHeap []finish

func (h finishHeap) Len() int { return len(h) }
func (h finishHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].job < h[j].job
}
func (h finishHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *finishHeap) Push(x any)   { *h = append(*h, x.(finish)) }
func (h *finishHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// restless is how many evictions per workload are taken for a loop.
const restless = 10

const never = millis(1) << 62

// drive runs all of w through s.
func drive(w *work, s side) (outcome, error) {
	d := &driver{w: w, s: s, state: make([]jobState, len(w.jobs)), epoch: make([]uint32, len(w.jobs)), used: make([]int64, len(w.capacity)), leaving: make([]int64, len(w.capacity))}
	arrived, done := 0, 0
	for done < len(w.jobs) {
		now := d.next(arrived)
		if now == never {
			return d.outcome, fmt.Errorf("%s: stuck: %d of %d workloads finished and nothing runs", w.name, done, len(w.jobs))
		}
		done += d.finishDue(now)
		d.releaseDue(now)
		for ; arrived < len(w.jobs) && w.jobs[arrived].arrives <= now; arrived++ {
			s.arrive(int32(arrived), now)
		}
		for again := true; again; {
			var plan decision
			plan, again = s.decide(now)
			d.outcome.decisions++
			if err := d.carryOut(plan, now); err != nil {
				return d.outcome, err
			}
		}
		d.outcome.ended = now
		if d.outcome.evictions > restless*len(w.jobs) {
			return d.outcome, fmt.Errorf("%s: %d evictions by %.1f s with %d of %d workloads finished: workloads preempt each other without end",
				w.name, d.outcome.evictions, float64(now)/1000, done, len(w.jobs))
		}
	}
	if d.outcome.admissions != len(w.jobs)+d.outcome.evictions {
		return d.outcome, fmt.Errorf("%s: %d admissions for %d workloads and %d evictions", w.name, d.outcome.admissions, len(w.jobs), d.outcome.evictions)
	}
	return d.outcome, s.empty()
}

// next is when something happens next.
func (d *driver) next(arrived int) millis {
	t := never
	if arrived < len(d.w.jobs) {
		t = d.w.jobs[arrived].arrives
	}
	for len(d.finishes) > 0 && d.void(d.finishes[0]) {
		heap.Pop(&d.finishes)
	}
	if len(d.finishes) > 0 {
		t = min(t, d.finishes[0].at)
	}
	if len(d.releases) > 0 {
		t = min(t, d.releases[0].at)
	}
	if at := d.s.wakeAt(); at > 0 {
		t = min(t, at)
	}
	return t
}

func (d *driver) void(f finish) bool {
	return d.state[f.job] != running || d.epoch[f.job] != f.epoch
}

func (d *driver) finishDue(now millis) (done int) {
	for len(d.finishes) > 0 && d.finishes[0].at <= now {
		f := heap.Pop(&d.finishes).(finish)
		if d.void(f) {
			continue
		}
		d.state[f.job] = finished
		root, cpus := d.takes(f.job)
		d.used[root] -= cpus
		d.s.finish(f.job, now)
		done++
	}
	return done
}

func (d *driver) releaseDue(now millis) {
	for len(d.releases) > 0 && d.releases[0].at <= now {
		r := d.releases[0]
		d.releases = d.releases[1:]
		d.state[r.job] = pending
		root, cpus := d.takes(r.job)
		d.used[root] -= cpus
		d.leaving[root] -= cpus
		d.s.release(r.job, now)
	}
}

func (d *driver) takes(job int32) (root int, cpus int64) {
	j := &d.w.jobs[job]
	return d.w.queues[j.queue].root, j.cpus
}

// carryOut does what a plan says, and fails if the plan may not say it.
func (d *driver) carryOut(plan decision, now millis) error {
	for _, job := range plan.evict {
		if d.state[job] != running {
			return fmt.Errorf("%s: %s evicted in state %d", d.w.name, jobName(int(job)), d.state[job])
		}
		d.state[job] = evicting
		root, cpus := d.takes(job)
		d.leaving[root] += cpus
		d.outcome.evictions++
		d.releases = append(d.releases, release{now + grace, job})
	}
	for _, job := range plan.admit {
		if d.state[job] != pending || d.w.jobs[job].arrives > now {
			return fmt.Errorf("%s: %s admitted in state %d", d.w.name, jobName(int(job)), d.state[job])
		}
		root, cpus := d.takes(job)
		d.used[root] += cpus
		switch over := d.used[root] - d.w.capacity[root]; {
		case over > d.leaving[root]:
			return fmt.Errorf("%s: %s admitted above the quota of its tree", d.w.name, jobName(int(job)))
		case over > 0:
			d.outcome.early++
		}
		d.state[job] = running
		d.epoch[job]++
		d.outcome.admissions++
		heap.Push(&d.finishes, finish{now + d.w.jobs[job].runs, job, d.epoch[job]})
	}
	return nil
}
