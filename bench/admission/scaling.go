package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
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

// scale works off backlogs of growing size with our engine.
func scale(largest, rounds int) ([]series, error) {
	all := []series{{shapes: fewShapes}, {shapes: manyShapes}}
	for i := range all {
		if err := all[i].grow(largest, rounds); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (s *series) grow(largest, rounds int) error {
	for _, n := range []int{1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000} {
		if n > largest {
			break
		}
		tries := make([]point, max(1, rounds))
		for i := range tries {
			var err error
			if tries[i], err = workOff(n, s.shapes); err != nil {
				return err
			}
		}
		slices.SortFunc(tries, func(a, b point) int { return cmp.Compare(a.micros, b.micros) })
		p := tries[len(tries)/2]
		s.points = append(s.points, p)
		fmt.Printf("figure admission_scaling_%d_shapes_%d %.2f us/workload\n", s.shapes, n, p.micros)
	}
	fmt.Printf("figure admission_scaling_%d_shapes_growth %.2f x\n", s.shapes, growth(s.points[0], s.points[len(s.points)-1]))
	return nil
}

// atOnce is how many workloads are worked off in one measurement: small backlogs again and again, so
// that garbage collection is in their time as it is in that of the large ones.
const atOnce = 100_000

func workOff(n, shapes int) (point, error) {
	w := backlog(n, shapes)
	rounds := max(1, atOnce/n)
	logs := make([]replay, rounds)
	total, err := measure(func() error {
		for i := range logs {
			o := newOurs(w, nothing)
			rec := &recording{side: o}
			if _, err := drive(w, rec); err != nil {
				return err
			}
			logs[i] = rec.log
		}
		return nil
	})
	if err != nil {
		return point{}, err
	}
	harness, err := measure(func() error {
		for i := range logs {
			newOurs(w, nothing)
			if _, err := drive(w, &logs[i]); err != nil {
				return err
			}
		}
		return nil
	})
	c, all := total.minus(harness), float64(n*rounds)
	return point{n: n, micros: float64(c.cpu.Nanoseconds()) / 1000 / all, allocs: float64(c.allocs) / all}, err
}

// growth compares total cost with n log n: 1 is n log n, less is better.
func growth(a, b point) float64 {
	return b.micros / a.micros / (math.Log(float64(b.n)) / math.Log(float64(a.n)))
}
