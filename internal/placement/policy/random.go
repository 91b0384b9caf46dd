package policy

// random takes any node that fits, and any card.
type random struct{}

func (random) Name() string { return "random" }
func (random) Shuffle()     {}

func (random) Node(*Case) float64 { return 0.5 }

func (random) Card(c *Case, take Take) float64 {
	return float64(mix(c.Salt+uint64(take.Card)+1)>>11) / (1 << 53)
}

// mix is the finalizer of splitmix64: neighbouring numbers come out unrelated.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
