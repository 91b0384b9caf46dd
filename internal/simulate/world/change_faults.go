package world

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// spotDown is how long it takes until another spot node comes, unless it is said.
const spotDown = 10 * time.Minute

// ParseSpot reads nodes that their provider takes back: EVERY[/DOWN][@NODES].
func ParseSpot(text string) (Spot, error) {
	times, nodes, _ := strings.Cut(text, "@")
	every, down, given := strings.Cut(times, "/")
	if !given {
		down = spotDown.String()
	}
	stays, err1 := time.ParseDuration(every)
	away, err2 := time.ParseDuration(down)
	if err1 != nil || err2 != nil || stays < time.Second || away < 0 {
		return Spot{}, fmt.Errorf("%s: want EVERY[/DOWN][@NODES], as 8h/10m@A100-40G", text)
	}
	return Spot{Nodes: nodes, Every: int64(stays / time.Second), Down: int64(away / time.Second)}, nil
}

// ParseStockOut reads a time in which no node comes: FROM-TO[@NODES].
func ParseStockOut(text string) (StockOut, error) {
	times, nodes, _ := strings.Cut(text, "@")
	from, to, _ := strings.Cut(times, "-")
	begins, err1 := time.ParseDuration(from)
	ends, err2 := time.ParseDuration(to)
	if err1 != nil || err2 != nil || begins < 0 || ends <= begins {
		return StockOut{}, fmt.Errorf("%s: want FROM-TO[@NODES], as 24h-48h@H100-80G", text)
	}
	return StockOut{Nodes: nodes, From: int64(begins / time.Second), To: int64(ends / time.Second)}, nil
}

// namesNone is what some of the faults are about, though it is said of no node of any cluster; "" where there is none such.
func (f *Faults) namesNone(clusters ...*Cluster) string {
	for _, s := range f.Spot {
		if !anyHas(clusters, s.Nodes) {
			return s.Nodes
		}
	}
	for _, s := range f.StockOuts {
		if !anyHas(clusters, s.Nodes) {
			return s.Nodes
		}
	}
	return ""
}

// anyHas says whether one of some clusters has nodes of a model or with a label.
func anyHas(clusters []*Cluster, nodes string) bool {
	return slices.ContainsFunc(clusters, func(c *Cluster) bool {
		return slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.matches(nodes) })
	})
}

// noSuchNodes says that there are none of a model or with a label, and what there is.
func (c *Cluster) noSuchNodes(nodes string) error {
	models := map[string]bool{}
	for i := range c.Nodes {
		if model := c.Nodes[i].Model; model != "" {
			models[model] = true
		}
	}
	if len(models) == 0 {
		return fmt.Errorf("no node is %s; none has a model, and those with a label are KEY=VALUE", nodes)
	}
	return fmt.Errorf("no node is %s; the models are %s, and nodes with a label KEY=VALUE", nodes, join(sortedKeys(models), 8))
}

// CheckNodes says which nodes are named, of faults or for prices, that none of the variants has.
func CheckNodes(f *Faults, variants []*Cluster) error {
	if nodes := f.namesNone(variants...); nodes != "" {
		return fmt.Errorf("--spot or --stock-out: %w", variants[0].noSuchNodes(nodes))
	}
	for _, nodes := range sortedKeys(variants[0].PerHour) {
		if nodes != SpotPrice && !anyHas(variants, nodes) {
			return fmt.Errorf("--price: %w", variants[0].noSuchNodes(nodes))
		}
	}
	return nil
}

// ofFaults changes the faults of a run beside those of the settings, for a variant alone.
func ofFaults(parse func(text string) (func(*Faults), error)) setter {
	return func(c *Cluster, name, text string) (bool, error) {
		if name != "" {
			return false, nil
		}
		change, err := parse(text)
		c.faults = append(slices.Clip(c.faults), change)
		return true, err
	}
}

var faultSettings = map[string]setter{
	"every": ofFaults(seconds(func(f *Faults, s int64) { f.Every = s })),
	"down":  ofFaults(seconds(func(f *Faults, s int64) { f.Down = s })),
	"spot": ofFaults(func(text string) (func(*Faults), error) {
		if text == off {
			return func(f *Faults) { f.Spot = nil }, nil
		}
		spot, err := ParseSpot(text)
		return func(f *Faults) { f.Spot = append(slices.Clip(f.Spot), spot) }, err
	}),
	"stockout": ofFaults(func(text string) (func(*Faults), error) {
		if text == off {
			return func(f *Faults) { f.StockOuts = nil }, nil
		}
		out, err := ParseStockOut(text)
		return func(f *Faults) { f.StockOuts = append(slices.Clip(f.StockOuts), out) }, err
	}),
}

// seconds reads a time; off is none.
func seconds(set func(*Faults, int64)) func(string) (func(*Faults), error) {
	return func(text string) (func(*Faults), error) {
		if text == off {
			text = "0s"
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > 0 && d < time.Second {
			return nil, fmt.Errorf("%q: want a time, as 6h, or off", text)
		}
		return func(f *Faults) { set(f, int64(d/time.Second)) }, nil
	}
}
