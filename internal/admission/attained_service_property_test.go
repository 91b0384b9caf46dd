package admission

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Waiting leads a workload up, the first level in a day, the second in four, and each further one in twice as long. So
// beside workloads that come for ever and take all there is, every one starts once it is a level better than those that come,
// one after the other. When no more come, all end.
func TestEverybodyStartsByService(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := byService()
		waits, longest := map[Key]bool{}, 0
		for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
			name, cards := fmt.Sprintf("waits%d", i), rapid.Int64Range(1, 8).Draw(t, "cards")
			ran := time.Duration(rapid.Int64Range(0, 749/cards).Draw(t, "ran")) * time.Second
			submit(s, name, cards, 0)
			w := s.workloads[Key{"default", name}]
			w.RanBefore, w.Created = ran, s.now.Add(-ran)
			s.workload(w)
			waits[w.Key] = true
			level, _ := serviceLevel(ran.Seconds() * float64(cards))
			longest = max(longest, level)
		}
		// Up to level 0, and one more.
		most := int((firstLift+secondLift*(1<<longest-1))/time.Hour) + len(waits) + 1
		for hour := 0; len(waits) > 0; hour++ {
			if hour > most {
				t.Fatalf("after %d hours %d have not started", hour, len(waits))
			}
			for _, k := range sortedKeys(s.workloads) {
				if w := s.workloads[k]; w.Admission != nil && !w.Evicting && k.Name[0] == 'n' {
					s.finish(k)
				}
			}
			for left, i := int64(8), 0; left > 0; i++ {
				cards := rapid.Int64Range(1, left).Draw(t, "new")
				submit(s, fmt.Sprintf("new%04d-%d", hour, i), cards, 0)
				left -= cards
			}
			if _, quiet := s.settle(100); !quiet {
				t.Fatalf("in hour %d it does not come to rest", hour)
			}
			for k := range waits {
				if s.workloads[k].Admission != nil {
					delete(waits, k)
				}
			}
			s.now = s.now.Add(time.Hour)
		}
		for left := len(s.workloads); len(s.workloads) > 0; left-- {
			if left < 0 {
				t.Fatalf("%d never start", len(s.workloads))
			}
			s.settle(100)
			for _, k := range sortedKeys(s.workloads) {
				if w := s.workloads[k]; w.Admission != nil && !w.Evicting {
					s.finish(k)
				}
			}
			s.now = s.now.Add(time.Hour)
		}
	})
}
