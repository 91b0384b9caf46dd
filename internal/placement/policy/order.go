package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// order takes cards in an order that a policy webhook has decided: "order:3.0.1" is card 3 first. Cards it
// does not name come last, and nodes are all alike.
type order struct {
	name string
	rank map[int32]float64
}

const orderPrefix = "order:"

// Order is the policy text for taking cards in this order.
func Order(cards []int) string {
	words := make([]string, len(cards))
	for i, c := range cards {
		words[i] = strconv.Itoa(c)
	}
	return orderPrefix + strings.Join(words, ".")
}

func parseOrder(name string) (Rule, error) {
	o := order{name: name, rank: map[int32]float64{}}
	words := strings.Split(strings.TrimPrefix(name, orderPrefix), ".")
	for i, word := range words {
		card, err := strconv.ParseUint(word, 10, 8)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is no card", name, word)
		}
		o.rank[int32(card)] = 1 - float64(i)/float64(len(words))
	}
	return o, nil
}

func (o order) Name() string { return o.name }

func (order) Node(*Case) float64 { return 0 }

func (o order) Card(_ *Case, take Take) float64 { return o.rank[take.Card] }
