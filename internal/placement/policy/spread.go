package policy

// spread takes the emptiest node and the emptiest card.
type spread struct{}

func (spread) Name() string { return "spread" }

func (spread) Node(c *Case) float64 { return 1 - used(c.After, c.Request) }

func (spread) Card(c *Case, take Take) float64 { return 1 - binpack{}.Card(c, take) }
