package quota

// Settle computes what a tree derives from the nodes' own quotas and the queues' own usage: subtree
// and guaranteed quota, cohorts' usage, maxima and what can be lent.
func (n *Node) Settle(frs []FlavorResource, resources int) {
	n.sumUp()
	n.spreadDown(frs, resources)
}

func (n *Node) sumUp() {
	n.Height = 0
	for _, ch := range n.Children {
		ch.sumUp()
		n.Height = max(n.Height, ch.Height+1)
	}
	for fr := range n.Cells {
		c := &n.Cells[fr]
		c.Subtree = c.Nominal
		if !n.Leaf {
			c.Use = [2]int64{}
		}
		for _, ch := range n.Children {
			cc := &ch.Cells[fr]
			c.Subtree = Sum(c.Subtree, cc.Subtree-cc.Local)
			c.Use[Now] += max(0, cc.Use[Now]-cc.Local)
			c.Use[Future] += max(0, cc.Use[Future]-cc.Local)
		}
		c.Local = 0
		if c.LendingLimit != NoLimit {
			c.Local = max(0, c.Subtree-c.LendingLimit)
		}
	}
}

func (n *Node) spreadDown(frs []FlavorResource, resources int) {
	n.Lendable = append(n.Lendable[:0], make([]int64, resources)...)
	for fr := range n.Cells {
		c := &n.Cells[fr]
		c.Max = c.Subtree
		if n.Parent != nil {
			c.Max = Sum(c.Local, n.Parent.Cells[fr].Max)
			if c.BorrowingLimit != NoLimit {
				c.Max = min(c.Max, Sum(c.Subtree, c.BorrowingLimit))
			}
		}
		res := frs[fr].Resource
		n.Lendable[res] = Sum(n.Lendable[res], c.Max)
	}
	for _, ch := range n.Children {
		ch.spreadDown(frs, resources)
	}
}
