package admission

import (
	"encoding/binary"
	"math"
)

// classKey spells out everything that makes the answer to one workload the answer to another, the
// request shape last. The bytes are valid until the next call.
func (e *Engine) classKey(w *Workload, l *localQueue, rank int64) (key, shape []byte) {
	k := keyWriter{e.scratch.key[:0], e.scratch.names}
	k.num(rank)
	if l != nil && l.queue != nil && l.queue.spec.UsageFairSharing {
		k.str(l.spec.Namespace)
		k.str(l.spec.Name)
	}
	if l != nil && l.spec.Timing != nil { // members preempt at the same times
		k.num(int64(l.spec.Timing.Delay) + 1)
		k.num(int64(l.spec.Timing.Cooldown))
	} else {
		k.num(0)
	}
	k.num(w.standing())
	if e.refusesApart() || l != nil && l.queue != nil && l.queue.backfills() {
		k.num(int64(w.runLimit()))
	}
	if e.priced > 0 { // what it costs depends on these
		k.num(int64(w.expectedRunTime()))
		k.num(int64(w.CheckpointInterval))
		k.num(int64(math.Float64bits(w.DelayPrice)))
		k.num(w.waiting())
		k.str(w.Input.Cloud)
		k.str(w.Input.Region)
		k.num(int64(math.Float64bits(w.Input.GiB)))
	}
	if len(e.budgeted.locals) > 0 && l != nil {
		k.str(l.spec.Namespace)
		k.str(l.spec.Name)
	}
	if len(e.advanceFor) > 0 && l != nil {
		for i := range e.advanceFor {
			if e.advanceFor[i].includes(w, l, l.queue) {
				k.num(int64(i) + 1)
			}
		}
		k.num(0)
	}
	from := len(k.b)
	for i := range w.PodSets {
		k.podSet(&w.PodSets[i])
	}
	e.scratch.key, e.scratch.names = k.b, k.names
	return k.b, k.b[from:]
}

// standing is what a workload may ask of others, and they of it.
func (w *Workload) standing() int64 {
	standing := int64(0)
	switch {
	case w.Extra:
		standing = 2
	case w.NeverPreempt:
		standing = 1
	}
	if w.PreemptionGated {
		standing += 4
	}
	return standing
}

// waiting is whether a workload may wait for spot nodes.
func (w *Workload) waiting() int64 {
	switch {
	case w.HandedOver:
		return 2
	case w.Waits:
		return 1
	}
	return 0
}

// keyWriter appends values so that different ones never give the same bytes.
type keyWriter struct {
	b     []byte
	names []string
}

func (k *keyWriter) str(s string) {
	k.b = binary.AppendUvarint(k.b, uint64(len(s)))
	k.b = append(k.b, s...)
}

func (k *keyWriter) num(v int64) { k.b = binary.AppendVarint(k.b, v) }

func (k *keyWriter) strs(list []string) {
	k.num(int64(len(list)))
	for _, s := range list {
		k.str(s)
	}
}

func (k *keyWriter) requests(r Requests) {
	k.names = appendSorted(k.names[:0], r)
	k.num(int64(len(k.names)))
	for _, name := range k.names {
		k.str(name)
		k.num(r[name])
	}
}

func (k *keyWriter) podSet(ps *PodSet) {
	k.str(ps.Name)
	k.str(ps.Group)
	k.strs(ps.Flavors)
	k.num(int64(ps.Count))
	k.num(int64(ps.MinCount))
	k.num(int64(ps.Reclaimable))
	k.requests(ps.Requests)
	if k.num(int64(len(ps.NodeRequests))); ps.NodeRequests != nil {
		k.requests(ps.NodeRequests)
	}
	k.constraints(ps)
	k.topology(ps.Topology)
	k.str(ps.Policy)
	if ps.Elsewhere {
		k.num(1)
	}
}

// constraints writes which nodes will do.
func (k *keyWriter) constraints(ps *PodSet) {
	k.names = appendSorted(k.names[:0], ps.NodeSelector)
	k.num(int64(len(k.names)))
	for _, name := range k.names {
		k.str(name)
		k.str(ps.NodeSelector[name])
	}
	k.num(int64(len(ps.Affinity)))
	for _, t := range ps.Affinity {
		k.term(t)
	}
	k.num(int64(len(ps.Preferences)))
	for _, p := range ps.Preferences {
		k.num(p.Weight)
		k.term(p.Term)
	}
	k.num(int64(len(ps.Tolerations)))
	for _, t := range ps.Tolerations {
		k.str(t.Key)
		k.str(t.Operator)
		k.str(t.Value)
		k.str(t.Effect)
	}
}

func (k *keyWriter) term(t Term) {
	k.num(int64(len(t)))
	for _, r := range t {
		k.str(r.Key)
		k.str(r.Operator)
		k.strs(r.Values)
	}
}

func (k *keyWriter) topology(t *TopologyRequest) {
	if t == nil {
		k.num(0)
		return
	}
	k.num(int64(t.Mode) + 1)
	k.str(t.Level)
	k.num(int64(len(t.Slices)))
	for _, slice := range t.Slices {
		k.str(slice.Level)
		k.num(int64(slice.Size))
	}
	if t.Beside != nil {
		k.strs(t.Beside.Levels)
		k.strs(t.Beside.Values)
	}
}
