package cost

import "math"

// Comparison is one market with the same jobs under several rules.
type Comparison struct {
	Market string  `json:"market"`
	Zones  int     `json:"zones"`
	Share  float64 `json:"spotShare"` // of the time in which some zone sells a machine
	Bound  float64 `json:"bound"`     // money, for someone who knows the future
	// Results by rule, with the money for each finished job over that of the bound.
	Results []Over `json:"results"`
}

// Over is a result beside the bound.
type Over struct {
	*Result
	OverBound float64 `json:"overBound"`
}

// Compare runs the jobs under every rule.
func Compare(m *Market, jobs []Job, rules []Rule, s *Settings) *Comparison {
	c := &Comparison{Market: m.Name, Zones: len(m.Zones), Share: m.Share(1), Bound: Bound(m, jobs, s)}
	for _, rule := range rules {
		c.add(Run(m, jobs, rule, s), len(jobs))
	}
	return c
}

func (c *Comparison) add(r *Result, jobs int) {
	over := math.NaN()
	if r.Finished > 0 && c.Bound > 0 {
		over = r.PerJob() / (c.Bound / float64(jobs))
	}
	c.Results = append(c.Results, Over{r, over})
}

// scarceShare: a zone that sells spot machines less than half of the time.
const scarceShare = 0.5

// Scarce is the market with the zones in which spot machines are scarce; nil if those are all, or fewer than two.
func (m *Market) Scarce() *Market {
	out := m.Only(m.Name+"-scarce", func(z *Zone) bool { return z.MeanShare() < scarceShare })
	if len(out.Zones) < 2 || len(out.Zones) == len(m.Zones) {
		return nil
	}
	return out
}
