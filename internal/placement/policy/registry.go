package policy

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Registry of all rules by name. A new rule is one line here.
func rules() []Rule {
	return []Rule{
		binpack{}, spread{}, random{}, fragmentation{}, topology{}, load{},
		// Published rules, for comparison.
		bestFit{}, dotProduct{}, clustering{}, packing{}, fgd{},
	}
}

// Registry maps every rule's name to the rule.
var Registry = build(rules())

func build(all []Rule) map[string]Rule {
	m := make(map[string]Rule, len(all))
	for _, r := range all {
		if _, twice := m[r.Name()]; twice {
			panic("policy: two rules named " + r.Name())
		}
		m[r.Name()] = r
	}
	return m
}

// Names of all rules, sorted.
func Names() []string {
	names := make([]string, 0, len(Registry))
	for name := range Registry {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Policy is the pair of rules for the two tiers.
type Policy struct{ Node, Card Mix }

// Mix is a weighted sum of rules; weights add up to one.
type Mix []Weighted

// Weighted is a rule with its weight.
type Weighted struct {
	Rule   Rule
	Weight float64
}

// Parse reads "binpack", "node=spread,card=binpack", or with weights "node=0.7*fragmentation+0.3*load".
// One name alone rules both tiers.
func Parse(text string) (Policy, error) {
	var p Policy
	for part := range strings.SplitSeq(text, ",") {
		tier, value, tiered := strings.Cut(strings.TrimSpace(part), "=")
		if !tiered {
			value = tier
		}
		mix, err := parseMix(value)
		if err != nil {
			return Policy{}, fmt.Errorf("policy %q: %w", text, err)
		}
		switch {
		case !tiered:
			p.Node, p.Card = mix, mix
		case tier == "node":
			p.Node = mix
		case tier == "card":
			p.Card = mix
		default:
			return Policy{}, fmt.Errorf("policy %q: tier %q: want node or card", text, tier)
		}
	}
	if p.Node == nil {
		p.Node = p.Card
	}
	if p.Card == nil {
		p.Card = p.Node
	}
	return p, nil
}

func parseMix(text string) (Mix, error) {
	var mix Mix
	sum := 0.0
	for term := range strings.SplitSeq(text, "+") {
		weight, name, weighted := strings.Cut(strings.TrimSpace(term), "*")
		w := 1.0
		if weighted {
			var err error
			if w, err = strconv.ParseFloat(weight, 64); err != nil || !(w > 0) || w > 1e9 {
				return nil, fmt.Errorf("weight %q: want a number above 0", weight)
			}
		} else {
			name = weight
		}
		rule, known := Registry[name]
		if strings.HasPrefix(name, orderPrefix) {
			var err error
			if rule, err = parseOrder(name); err != nil {
				return nil, err
			}
		} else if !known {
			return nil, fmt.Errorf("no rule %q: have %s", name, strings.Join(Names(), ", "))
		}
		mix = append(mix, Weighted{rule, w})
		sum += w
	}
	for i := range mix {
		mix[i].Weight /= sum
	}
	return mix, nil
}

// NodeScore of a case.
func (m Mix) NodeScore(c *Case) float64 {
	score := 0.0
	for i := range m {
		score += m[i].Weight * m[i].Rule.Node(c)
	}
	return score
}

// CardScore of giving the pod this card next.
func (m Mix) CardScore(c *Case, take Take) float64 {
	score := 0.0
	for i := range m {
		score += m[i].Weight * m[i].Rule.Card(c, take)
	}
	return score
}

// Chooser of the mix: that of its heaviest rule, if it has one.
func (m Mix) Chooser() Chooser {
	heaviest := 0
	for i := range m {
		if m[i].Weight > m[heaviest].Weight {
			heaviest = i
		}
	}
	chooser, _ := m[heaviest].Rule.(Chooser)
	return chooser
}

// Shuffles says whether a lot decides among equals.
func (m Mix) Shuffles() bool {
	for i := range m {
		if _, ok := m[i].Rule.(Shuffler); ok {
			return true
		}
	}
	return false
}

// ReadsDemand says whether scores age when demand moves.
func (m Mix) ReadsDemand() bool {
	for i := range m {
		if _, ok := m[i].Rule.(DemandBound); ok {
			return true
		}
	}
	return false
}

// ReadsOtherCards says whether the score of a card changes as others are given.
func (m Mix) ReadsOtherCards() bool {
	for i := range m {
		_, neighbourly := m[i].Rule.(Neighbourly)
		if _, chooses := m[i].Rule.(Chooser); chooses || neighbourly {
			return true
		}
	}
	return false
}
