package main

import (
	"testing"
	"unsafe"

	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// The run fails where a waiting job takes 2 KB or more.
func TestMemoryIsBounded(t *testing.T) {
	for bytes, fails := range map[float64]bool{1169: false, 2047: false, 2048: true, 5000: true} {
		if err := tooMuch(bytes, 200_000); (err != nil) != fails {
			t.Errorf("%v B: %v", bytes, err)
		}
	}
}

// A slow machine fails nothing, unless a bar is given.
func TestTheBarOfTheTime(t *testing.T) {
	for _, c := range []struct {
		seconds, bar float64
		fails        bool
	}{{1000, 0, false}, {60, 60, false}, {60.1, 60, true}} {
		if err := tooSlow(c.seconds, c.bar); (err != nil) != c.fails {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// What a waiting job takes is its line of the trace, too: at least what its fields are.
func TestMemoryOfTheTraceCounts(t *testing.T) {
	shares := []world.Share{{Queue: "a", Nodes: 20, Cards: 8}}
	bytes, waiting, err := memoryWith(20_000, shares)
	if err != nil {
		t.Fatal(err)
	}
	if least := float64(waiting) * float64(unsafe.Sizeof(world.Job{})+100); bytes < least {
		t.Errorf("%.0f B for %d jobs that wait: want at least %.0f", bytes, waiting, least)
	}
}

// The goals fail where they are missed: a queue is worse off with borrowing in its mean delay or its worst ones, too.
func TestGoals(t *testing.T) {
	at := func(jct, delay, p99 float64) *world.Group {
		return &world.Group{JCT: world.Spread{Mean: jct}, Delay: world.Spread{Mean: delay, P99: p99}}
	}
	for _, c := range []struct {
		g     *world.Group
		fails bool
	}{{at(10, 5, 20), false}, {at(9, 4, 19), false}, {at(11, 5, 20), true}, {at(10, 6, 20), true}, {at(10, 5, 21), true}} {
		if err := worse(c.g, at(10, 5, 20)); (err != nil) != c.fails {
			t.Errorf("%+v: %v", c.g, err)
		}
	}
	for _, c := range []struct {
		r     world.Report
		fails bool
	}{
		{world.Report{Jobs: 100, Preemptions: 35, JCT: world.Spread{Mean: 37.2 * 3600}, Delay: world.Spread{P999: 173 * 3600}}, false},
		{world.Report{Jobs: 100, JCT: world.Spread{Mean: 37.4 * 3600}}, true},
		{world.Report{Jobs: 100, Delay: world.Spread{P999: 175 * 3600}}, true},
		{world.Report{Jobs: 100, Preemptions: 36}, true},
	} {
		if err := goal("it", &c.r); (err != nil) != c.fails {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
}
