package faults

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "run the world of this seed alone")
	firstFlag    = flag.Uint64("first", 1, "the first seed")
	stepsFlag    = flag.Int("steps", 400, "steps of a world before it is let come to rest")
	faultsFlag   = flag.Uint64("faults", 1000, "go on until this many faults were survived")
	scheduleFlag = flag.String("schedule", "", "with -seed: a file with the schedule to replay, instead of the seed's own")
	traceFlag    = flag.Bool("trace", false, "with -seed: print every step")
	censusFlag   = flag.Bool("census", false, "go on after a broken invariant, and do not shorten its schedule")
)

// Worlds by their seeds, until enough faults were survived.
func TestFaults(t *testing.T) {
	if *seedFlag != 0 {
		one(t, *seedFlag)
		return
	}
	var seeds, survived atomic.Uint64
	seeds.Store(*firstFlag - 1)
	t.Run("worlds", func(t *testing.T) {
		for core := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(core), func(t *testing.T) {
				t.Parallel()
				for survived.Load() < *faultsFlag && (*censusFlag || !t.Failed()) {
					seed := seeds.Add(1)
					now := survived.Add(one(t, seed))
					if seed%1000 == 0 {
						fmt.Printf("worlds up to seed %d: %d faults survived\n", seed, now)
					}
				}
			})
		}
	})
	fmt.Printf("figure faults_survived %d faults\n", survived.Load())
}

// one world; if an invariant breaks, the shortest schedule that breaks it is printed.
func one(t *testing.T, seed uint64) (survived uint64) {
	var result Result
	if *scheduleFlag != "" {
		text, err := os.ReadFile(*scheduleFlag)
		if err != nil {
			t.Fatal(err)
		}
		result = Replay(t, seed, ParseSchedule(string(text)))
	} else {
		result = Run(t, seed, *stepsFlag)
	}
	if *traceFlag {
		fmt.Print(result.Trace)
	}
	if result.Broken == "" {
		return uint64(result.Faults)
	}
	if *censusFlag {
		t.Errorf("seed %d: %s", seed, result.Broken)
		return 0
	}
	if *scheduleFlag == "" {
		result = Shrink(t, seed, result)
	}
	t.Errorf("seed %d, %+v: %s\n\nThe schedule, shortened to %d steps. To replay it, write it to a file and run\n  make simulate-faults SEED=%d SCHEDULE=file\n\n%s",
		seed, newSetting(seed), result.Broken, len(result.Schedule), seed, FormatSchedule(result.Schedule))
	return 0
}

// A seed, and the schedule that it led to, replay every step.
func TestSeedReplaysExactly(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		first := Run(t, seed, 300)
		again := Run(t, seed, 300)
		if first.Trace != again.Trace {
			t.Fatalf("seed %d leads elsewhere the second time, from\n%s", seed, firstDifference(first.Trace, again.Trace))
		}
		replayed := Replay(t, seed, ParseSchedule(FormatSchedule(first.Schedule)))
		if first.Trace != replayed.Trace {
			t.Fatalf("the schedule of seed %d leads elsewhere than the seed, from\n%s", seed, firstDifference(first.Trace, replayed.Trace))
		}
	}
}

func firstDifference(a, b string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[max(0, i-200):min(len(a), i+100)] + "\n- - -\n" + b[max(0, i-200):min(len(b), i+100)]
		}
	}
	return "the end of the shorter one"
}

// A schedule that breaks an invariant is shortened to the steps that it takes: here somebody gives a
// workload quota that its queue does not have.
func TestShrinksToWhatItTakes(t *testing.T) {
	const seed = 1
	long := Run(t, seed, 60)
	if long.Broken != "" {
		t.Fatal(long.Broken)
	}
	forged := action("forge", "j1")
	failing := Replay(t, seed, append(long.Schedule, action("submit", "j1", "q0", 0, 1, 1), action("forge", "j1")))
	if kindOf(failing.Broken) != "quota" && kindOf(failing.Broken) != "conditions" {
		t.Fatalf("quota out of nowhere was not noticed: %q", failing.Broken)
	}
	short := Shrink(t, seed, failing)
	if len(short.Schedule) > 8 || short.Schedule[len(short.Schedule)-1].String() != forged.String() {
		t.Errorf("it was shortened to\n%s", FormatSchedule(short.Schedule))
	}
}
