package main

import (
	"fmt"
	"time"
)

// estimate says how far a build is. go names a package when it begins to compile it: by then everything that the
// package imports is there, compiled now or before.
type estimate struct {
	graph    *graph
	compiled map[string]bool // named by go
	there    map[string]bool // named, or imported by one that is

	total, compiledCost, thereCost float64
}

// cost of a package: even an empty one takes a process, which weighs as much as some source.
func cost(n *node) float64 { return 20_000 + float64(n.bytes) }

func newEstimate(g *graph) *estimate {
	e := &estimate{graph: g, compiled: map[string]bool{}, there: map[string]bool{}}
	for _, n := range g.packages {
		e.total += cost(n)
	}
	return e
}

// started says that a package is being compiled.
func (e *estimate) started(name string) {
	n, ok := e.graph.packages[name]
	if !ok || e.compiled[name] {
		return
	}
	e.compiled[name] = true
	e.compiledCost += cost(n)
	e.reach(name)
}

func (e *estimate) reach(name string) {
	n, ok := e.graph.packages[name]
	if !ok || e.there[name] {
		return
	}
	e.there[name] = true
	e.thereCost += cost(n)
	for _, imported := range n.imports {
		e.reach(imported)
	}
}

// line is where the build stands after some time; empty before anything was compiled.
func (e *estimate) line(spent time.Duration) string {
	if len(e.compiled) == 0 {
		return ""
	}
	if len(e.there) == len(e.graph.packages) {
		return fmt.Sprintf("all %d packages compiled, linking", len(e.there))
	}
	line := fmt.Sprintf("%d of %d packages", len(e.there), len(e.graph.packages))
	// The first packages are small ones of the standard library: too early to say.
	if spent < 5*time.Second || e.compiledCost < e.total/100 {
		return line
	}
	left := time.Duration(float64(spent) * (e.total - e.thereCost) / e.compiledCost)
	return line + ", about " + short(left) + " more"
}

// short is a duration as one says it.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%d s", int(d.Seconds()+0.5))
	case d < 95*time.Second:
		return fmt.Sprintf("%d s", 5*int(d.Seconds()/5+0.5))
	}
	return fmt.Sprintf("%.1f min", d.Minutes())
}
