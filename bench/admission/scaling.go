package main

import (
	"fmt"
	"math"
	"time"
)

// series is how the cost of our engine grows with a backlog of one kind.
type series struct {
	shapes int
	points []point
}

// point is one size of backlog, worked off to the end.
type point struct {
	n      int
	micros float64 // CPU per workload
	allocs float64
}

func (p point) total() time.Duration {
	return time.Duration(p.micros * float64(p.n) * float64(time.Microsecond))
}

// patience ends a series: no larger backlog is tried once one took this long.
const patience = 10 * time.Second

// scale works off backlogs of growing size with our engine.
func scale(largest int) ([]series, error) {
	all := []series{{shapes: fewShapes}, {shapes: manyShapes}}
	for i := range all {
		if err := all[i].grow(largest); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (s *series) grow(largest int) error {
	for _, n := range []int{1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000} {
		if n > largest {
			break
		}
		p, err := workOff(n, s.shapes)
		if err != nil {
			return err
		}
		s.points = append(s.points, p)
		fmt.Printf("figure admission_scaling_%d_shapes_%d %.2f us/workload\n", s.shapes, n, p.micros)
		if p.total() > patience && n < largest {
			fmt.Printf("# %d shapes: %d workloads took %s, larger backlogs are not tried\n", s.shapes, n, p.total().Round(time.Second))
			break
		}
	}
	fmt.Printf("figure admission_scaling_%d_shapes_growth %.2f x\n", s.shapes, growth(s.points[0], s.points[len(s.points)-1]))
	return nil
}

func workOff(n, shapes int) (point, error) {
	w := backlog(n, shapes)
	var runs []run1
	for used := time.Duration(0); used < time.Second && len(runs) < 5; {
		r, err := runOurs(w)
		if err != nil {
			return point{}, err
		}
		runs = append(runs, r)
		used += r.cost.cpu
	}
	r := median(runs)
	return point{n: n, micros: float64(r.cost.cpu.Nanoseconds()) / 1000 / float64(n), allocs: float64(r.cost.allocs) / float64(n)}, nil
}

// growth compares total cost with n log n: 1 is n log n, less is better.
func growth(a, b point) float64 {
	return b.micros / a.micros / (math.Log(float64(b.n)) / math.Log(float64(a.n)))
}
