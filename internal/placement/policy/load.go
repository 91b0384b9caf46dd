package policy

// load avoids what is measured to be busy, whatever was asked for: a card's utilisation and its memory in use.
type load struct{}

func (load) Name() string { return "load" }

func (load) Node(c *Case) float64 {
	if len(c.Takes) == 0 {
		return 1 - meanBusy(c.Before)
	}
	sum := 0.0
	for _, take := range c.Takes {
		sum += busy(&c.Before.Cards[take.Card])
	}
	return 1 - sum/float64(len(c.Takes))
}

func (load) Card(c *Case, take Take) float64 { return 1 - busy(&c.Before.Cards[take.Card]) }

func busy(c *Card) float64 {
	return min(max(float64(max(c.Busy, c.MemoryBusy)), 0), 1)
}

func meanBusy(n *Node) float64 {
	if len(n.Cards) == 0 {
		return 0
	}
	sum := 0.0
	for i := range n.Cards {
		sum += busy(&n.Cards[i])
	}
	return sum / float64(len(n.Cards))
}
