// Package nodespec reads the short notation for a fleet of nodes,
//
//	4x8:H100-80G,8x4:A100-40G,100x0
//
// count x cards : model, and lists the nodes it stands for.
package nodespec

import (
	"fmt"
	"strconv"
	"strings"
)

// Default is a fleet small enough for a laptop and mixed enough to be interesting.
const Default = "4x8:H100-80G,4x4:A100-40G,2x0"

const (
	maxNodes = 50_000
	maxCards = 16 // the most one node is built with
)

// Node is one of a fleet.
type Node struct {
	Name  string
	Pool  string // the nodes of one model
	Index int    // within the pool
	Cards int
	Model Model // zero when there are no cards
}

// Error names the part of a node spec that cannot be read.
type Error struct{ Part, Reason string }

func (e *Error) Error() string {
	return fmt.Sprintf("bad node spec %q: %s; the form is COUNTxCARDS:MODEL, as 4x8:H100-80G, or COUNTx0 for nodes without cards", e.Part, e.Reason)
}

// Parse reads a node spec; the empty one has no nodes. Pools listed twice are counted on.
func Parse(text string) ([]Node, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var nodes []Node
	next := map[string]int{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		count, cards, model, err := parsePart(part)
		if err != nil {
			return nil, err
		}
		if len(nodes)+count > maxNodes {
			return nil, &Error{part, fmt.Sprintf("more than %d nodes in all", maxNodes)}
		}
		pool := "cpu"
		if cards > 0 {
			pool = strings.ToLower(model.Name)
		}
		for range count {
			i := next[pool]
			next[pool]++
			nodes = append(nodes, Node{Name: fmt.Sprintf("%s-%d", pool, i), Pool: pool, Index: i, Cards: cards, Model: model})
		}
	}
	return nodes, nil
}

func parsePart(part string) (count, cards int, model Model, err error) {
	numbers, name, named := strings.Cut(part, ":")
	left, right, ok := strings.Cut(numbers, "x")
	if !ok {
		return 0, 0, Model{}, &Error{part, "there is no x between two numbers"}
	}
	if count, err = number(part, "count", left, maxNodes); err != nil {
		return 0, 0, Model{}, err
	}
	if cards, err = number(part, "number of cards", right, maxCards); err != nil {
		return 0, 0, Model{}, err
	}
	switch {
	case cards == 0 && named:
		return 0, 0, Model{}, &Error{part, "nodes without cards have no model"}
	case cards > 0 && !named:
		return 0, 0, Model{}, &Error{part, "the model of the cards is missing"}
	case cards > 0:
		if model, err = ParseModel(name); err != nil {
			return 0, 0, Model{}, &Error{part, err.Error()}
		}
	}
	return count, cards, model, nil
}

func number(part, what, text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, &Error{part, fmt.Sprintf("the %s %q is not a number", what, text)}
	}
	if n > most {
		return 0, &Error{part, fmt.Sprintf("the %s %d is above %d", what, n, most)}
	}
	return n, nil
}
