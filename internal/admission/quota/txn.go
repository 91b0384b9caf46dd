package quota

// Txn is a stack of tentative changes of usage. Rollback takes back everything since a checkpoint,
// so nothing is ever undone by hand:
//
//	mark := txn.Checkpoint()
//	txn.Add(node, usage, Future)
//	fits := ...
//	txn.Rollback(mark)
//
// Checkpoints nest. An inner change may also be left standing: the outer rollback takes it back.
// Changes that are meant to last do not go through a Txn.
type Txn struct {
	// Nodes, if set, changes together with usage.
	Nodes Rollbacker
	log   []change
	marks int // of Nodes, in the log
}

// change is an amount added at a queue or, where node is nil, a mark of Nodes.
type change struct {
	node *Node
	v    int64
	fr   int32
	view View
}

// Rollbacker is state elsewhere that changes with usage, in a what-if of its own: the nodes and
// cards that the Placer knows.
type Rollbacker interface {
	Checkpoint() (mark int)
	Rollback(mark int)
}

// Checkpoint marks the changes so far.
func (t *Txn) Checkpoint() int { return len(t.log) }

// Rollback takes back all changes since the mark.
func (t *Txn) Rollback(mark int) {
	for len(t.log) > mark {
		c := &t.log[len(t.log)-1]
		if c.node != nil {
			c.node.Add(c.fr, -c.v, c.view)
		} else {
			t.Nodes.Rollback(int(c.v))
			t.marks--
		}
		t.log = t.log[:len(t.log)-1]
	}
}

// Add counts amounts at a queue.
func (t *Txn) Add(n *Node, list []Amount, view View) {
	for _, u := range list {
		t.add(n, u.FR, u.V, view)
	}
}

// Sub takes amounts off a queue.
func (t *Txn) Sub(n *Node, list []Amount, view View) {
	for _, u := range list {
		t.add(n, u.FR, -u.V, view)
	}
}

func (t *Txn) add(n *Node, fr int32, v int64, view View) {
	n.Add(fr, v, view)
	t.log = append(t.log, change{node: n, fr: fr, v: v, view: view})
}

// ChangeNodes has what Nodes changes from here on taken back with the rest.
func (t *Txn) ChangeNodes() {
	t.log = append(t.log, change{v: int64(t.Nodes.Checkpoint())})
	t.marks++
}

// Unchanged says that no change is under way.
func (t *Txn) Unchanged() bool { return len(t.log) == 0 }

// NodesAsTheyAre says that no change of Nodes is under way.
func (t *Txn) NodesAsTheyAre() bool { return t.marks == 0 }
