package quota

// What two nodes of a tree can take from each other.

// CanReclaim says whether quota may be reclaimed from borrower: it borrows at every level up to where it meets node.
func CanReclaim(node, borrower *Node, fr int32) bool {
	for n := borrower; !node.Under(n); n = n.Parent {
		if !n.Borrowing(fr, 0, Future) {
			return false
		}
	}
	return true
}

// Fork returns the nodes below the lowest common cohort on the way to each of two queues.
func Fork(a, b *Node) (*Node, *Node) {
	for x := a; x.Parent != nil; x = x.Parent {
		for y := b; y.Parent != nil; y = y.Parent {
			if x.Parent == y.Parent {
				return x, y
			}
		}
	}
	return a, b
}

// AvailableTogether is how much both nodes can have in sum.
func (n *Node) AvailableTogether(o *Node, fr int32) int64 {
	meet, sum := n, int64(0)
	for ; !o.Under(meet); meet = meet.Parent {
		sum += meet.Cells[fr].LocalFree(Future)
	}
	for ; o != meet; o = o.Parent {
		sum += o.Cells[fr].LocalFree(Future)
	}
	return sum + meet.Available(fr, Future)
}

// AvailableUnborrowed is the most a node can have while some level below where it meets o does not
// borrow, so that o could reclaim nothing from it.
func (n *Node) AvailableUnborrowed(o *Node, fr int32) int64 {
	most, below := int64(0), int64(0)
	for ; !o.Under(n); n = n.Parent {
		c := &n.Cells[fr]
		most = max(most, c.Subtree-c.Use[Future]+below)
		below += c.LocalFree(Future)
	}
	return most
}
