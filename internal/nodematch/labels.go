package nodematch

import (
	"slices"
	"strconv"
)

// Requirement on one label. Operator is In, NotIn, Exists, DoesNotExist, Gt or Lt; any other matches nothing.
type Requirement struct {
	Key, Operator string
	Values        []string
}

// Term is a list of requirements that must all hold.
type Term []Requirement

// Preference is a term that nodes had better match, and how much that is worth.
type Preference struct {
	Term   Term
	Weight int64
}

// Score adds up the preferences that a node matches.
func Score(preferences []Preference, name string, labels map[string]string) int64 {
	score := int64(0)
	for _, p := range preferences {
		if p.Term.MatchesNode(name, labels) {
			score += p.Weight
		}
	}
	return score
}

// Matches reads the term as a label selector: an empty one matches everything.
func (t Term) Matches(labels map[string]string) bool {
	for i := range t {
		if !t[i].Matches(labels) {
			return false
		}
	}
	return true
}

// MatchesKnown is Matches for the requirements whose key is among the labels; the others count as met.
func (t Term) MatchesKnown(labels map[string]string) bool {
	for i := range t {
		if value, known := labels[t[i].Key]; known && !t[i].allows(value, true) {
			return false
		}
	}
	return true
}

// nodeName is the one field, besides labels, that node affinity may name.
const nodeName = "metadata.name"

// MatchesNode reads the term as one of node affinity: an empty one matches no node,
// and the key "metadata.name" stands for the node's name.
func (t Term) MatchesNode(name string, labels map[string]string) bool {
	for i := range t {
		value, has := labels[t[i].Key]
		if t[i].Key == nodeName {
			value, has = name, true
		}
		if !t[i].allows(value, has) {
			return false
		}
	}
	return len(t) > 0
}

// Matches says whether the labels meet the requirement.
func (r *Requirement) Matches(labels map[string]string) bool {
	value, has := labels[r.Key]
	return r.allows(value, has)
}

// allows is the requirement on a value, or on none.
func (r *Requirement) allows(value string, has bool) bool {
	switch r.Operator {
	case "In":
		return has && slices.Contains(r.Values, value)
	case "NotIn":
		return !has || !slices.Contains(r.Values, value)
	case "Exists":
		return has
	case "DoesNotExist":
		return !has
	case "Gt", "Lt":
		return has && r.compares(value)
	}
	return false
}

// compares holds for whole numbers only.
func (r *Requirement) compares(value string) bool {
	if len(r.Values) != 1 {
		return false
	}
	have, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return false
	}
	want, err := strconv.ParseInt(r.Values[0], 10, 64)
	if err != nil {
		return false
	}
	if r.Operator == "Gt" {
		return have > want
	}
	return have < want
}
