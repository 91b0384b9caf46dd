package main

// recording notes a side's answers while it runs.
type recording struct {
	side
	log replay
}

func (r *recording) decide(now millis) (decision, bool) {
	d, again := r.side.decide(now)
	r.log.admits = append(r.log.admits, d.admit...)
	r.log.evicts = append(r.log.evicts, d.evict...)
	r.log.steps = append(r.log.steps, step{len(d.admit), len(d.evict), again})
	return d, again
}

func (r *recording) wakeAt() millis {
	at := r.side.wakeAt()
	r.log.wakes = append(r.log.wakes, at)
	return at
}

// replay gives recorded answers and does nothing else: what a run with it
// takes is what the harness takes.
type replay struct {
	admits, evicts []int32
	steps          []step
	wakes          []millis
}

type step struct {
	admits, evicts int
	again          bool
}

func (r *replay) arrive(int32, millis)  {}
func (r *replay) finish(int32, millis)  {}
func (r *replay) release(int32, millis) {}
func (r *replay) empty() error          { return nil }

func (r *replay) decide(millis) (d decision, again bool) {
	s := r.steps[0]
	r.steps = r.steps[1:]
	d.admit, r.admits = r.admits[:s.admits], r.admits[s.admits:]
	d.evict, r.evicts = r.evicts[:s.evicts], r.evicts[s.evicts:]
	return d, s.again
}

func (r *replay) wakeAt() millis {
	at := r.wakes[0]
	r.wakes = r.wakes[1:]
	return at
}
