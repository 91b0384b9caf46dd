package placement

import (
	"fmt"
	"slices"
	"time"
)

// Txn is a what-if: changes show in every answer of the engine at once, and Rollback leaves no
// trace of them. Transactions nest; an inner one must end before the outer one goes on.
type Txn struct {
	e    *Engine
	mark int
	done bool
}

// Begin a transaction.
func (e *Engine) Begin() *Txn {
	t := &Txn{e: e, mark: len(e.journal)}
	e.marks = append(e.marks, t.mark)
	return t
}

// Remove a pod, as if it were gone. It reports whether the pod was there.
func (t *Txn) Remove(key string) bool {
	h := t.e.pods[key]
	if h != nil {
		t.e.remove(h)
	}
	return h != nil
}

// RemoveGang removes all pods and placeholders of a gang and returns how many there were.
func (t *Txn) RemoveGang(key string) int {
	all := slices.Clone(t.e.gangOf(key))
	for _, h := range all {
		t.e.remove(h)
	}
	return len(all)
}

// Hold reserves for a gang what an earlier answer placed, even beyond capacity: jobs are found running
// after a restart, and cards are given on while their last pods still end. Earlier placeholders of the
// gang are dropped; each of its bound pods stands for one of the new ones.
func (t *Txn) Hold(g *Gang, answer *Answer) error {
	e := t.e
	e.dropPlaceholders(g.Key)
	mark, alone := len(e.journal), len(e.gangOf(g.Key)) == 0
	for i := range answer.PodSets {
		a := &answer.PodSets[i]
		if alone && e.holdable(g, a) {
			e.holdAgain(g, a)
			continue
		}
		at := slices.IndexFunc(g.PodSets, func(s PodSet) bool { return s.Name == a.Name })
		if at < 0 {
			e.undo(mark)
			return fmt.Errorf("gang %s has no pod set %s", g.Key, a.Name)
		}
		if err := e.holdAnswer(g, &g.PodSets[at], a); err != nil {
			e.undo(mark)
			return err
		}
	}
	return nil
}

// holdable: the placeholders that were made for the answer are what to hold for it still.
func (e *Engine) holdable(g *Gang, a *PodSetAnswer) bool {
	for _, h := range a.holds {
		if h.pod.Gang != g.Key || !e.has(h.node) || h.gen != h.node.gen || h.shape.unlearned {
			return false
		}
	}
	return len(a.holds) > 0
}

// has says that the node is one of this engine's: an answer may be another's.
func (e *Engine) has(n *node) bool { return int(n.pos) < len(e.nodes) && e.nodes[n.pos] == n }

// holdAgain holds placeholders that are on no node, numbered in the order of the answer.
func (e *Engine) holdAgain(g *Gang, a *PodSetAnswer) {
	for n, h := range a.holds {
		if h.number != n {
			other := *h // what was undone may yet come back as it was
			other.number, other.key = n, placeholderKey(g.Key, a.Name, n)
			h, a.holds[n] = &other, &other
		}
		e.add(h)
	}
}

func (e *Engine) holdAnswer(g *Gang, set *PodSet, a *PodSetAnswer) error {
	pod := set.Pod
	pod.Gang, pod.PodSet = g.Key, set.Name
	s, err := e.shapeOf(&pod)
	if err != nil {
		return err
	}
	here := map[string]int{} // pods of the set that are on a node already
	for _, h := range e.gangOf(g.Key) {
		if !h.placeholder && h.pod.PodSet == set.Name {
			here[h.node.name]++
		}
	}
	n := 0
	for _, p := range a.Placed {
		for i := range p.Count {
			pod.Key = placeholderKey(g.Key, set.Name, n)
			n++
			if here[p.Node] > 0 {
				here[p.Node]--
				continue
			}
			h := e.newHolding(&pod, s, e.nodeNamed(p.Node))
			h.placeholder = true
			if i < len(p.Cards) {
				h.takes = takesOf(s, &pod, p.Cards[i])
			}
			e.add(h)
		}
	}
	return nil
}

// Rollback undoes everything since Begin. After Commit or a first Rollback it does nothing.
func (t *Txn) Rollback() {
	if t.done {
		return
	}
	t.e.undo(t.mark)
	t.end()
}

// Commit makes the changes last. What was reserved for gangs expires at the given time; a zero time never passes.
func (t *Txn) Commit(until time.Time) {
	for _, c := range t.e.journal[t.mark:] {
		if c.added && !c.h.bound {
			c.h.until = until
		}
	}
	t.finish()
}

// finish ends the transaction with its changes in place. The outermost one makes them final.
func (t *Txn) finish() {
	t.end()
	if len(t.e.marks) > 0 {
		return
	}
	for _, c := range t.e.journal {
		t.e.demand.count(t.e, c.h, c.added)
		t.e.unlearn(c.h.shape)
	}
	clear(t.e.journal)
	t.e.journal = t.e.journal[:0]
}

func (t *Txn) end() {
	if t.done || len(t.e.marks) == 0 || t.e.marks[len(t.e.marks)-1] != t.mark {
		panic("placement: transactions must end in the reverse order of their beginning")
	}
	t.done = true
	t.e.marks = t.e.marks[:len(t.e.marks)-1]
}

// undo the journal back to a mark.
func (e *Engine) undo(mark int) {
	for len(e.journal) > mark {
		last := len(e.journal) - 1
		c := e.journal[last]
		if c.added {
			e.remove(c.h)
		} else {
			e.add(c.h)
		}
		// Undoing wrote itself into the journal behind c; cut both.
		clear(e.journal[last:])
		e.journal = e.journal[:last]
	}
}
