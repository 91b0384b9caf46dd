package placement

import "time"

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

// Remove takes a pod off the books, as if it were gone. It reports whether the pod was there.
func (t *Txn) Remove(key string) bool {
	h := t.e.pods[key]
	if h != nil {
		t.e.drop(h)
	}
	return h != nil
}

// Rollback undoes everything since Begin. After Commit or a first Rollback it does nothing.
func (t *Txn) Rollback() {
	if t.done {
		return
	}
	t.e.undo(t.mark)
	t.end()
}

// Commit keeps the changes. Places found for gangs are held until the given time; a zero time never passes.
func (t *Txn) Commit(until time.Time) {
	for _, c := range t.e.journal[t.mark:] {
		if c.added && !c.h.bound {
			c.h.until = until
		}
	}
	t.keepAll()
}

// keepAll ends the transaction and keeps its changes. The outermost one makes them final.
func (t *Txn) keepAll() {
	t.end()
	if len(t.e.marks) > 0 {
		return
	}
	for _, c := range t.e.journal {
		t.e.demand.count(t.e, c.h, c.added)
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
			e.drop(c.h)
		} else {
			e.keep(c.h)
		}
		// Undoing wrote itself into the journal behind c; cut both.
		clear(e.journal[last:])
		e.journal = e.journal[:last]
	}
}
