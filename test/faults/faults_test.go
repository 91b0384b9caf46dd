package faults

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "run the world of this seed alone")
	stepsFlag    = flag.Int("steps", 400, "steps of a world before it is let come to rest")
	faultsFlag   = flag.Int("faults", 5000, "go on until this many faults were survived")
	traceFlag    = flag.Bool("trace", false, "with -seed: print every step")
	scheduleFlag = flag.String("schedule", "", "with -seed: a file with the schedule to replay, instead of the seed's own")
	firstFlag    = flag.Uint64("first", 1, "the first seed")
)

// Worlds by their seeds, until enough faults were survived.
func TestFaults(t *testing.T) {
	if *seedFlag != 0 {
		one(t, *seedFlag)
		return
	}
	survived := 0
	for seed := *firstFlag; survived < *faultsFlag && !t.Failed(); seed++ {
		survived += one(t, seed)
	}
	for k, v := range census {
		fmt.Println(len(v), k, v[:min(5, len(v))])
	}
	fmt.Printf("figure faults_survived %d faults\n", survived)
}

var census = map[string][]uint64{}

// one world; if an invariant breaks, the shortest schedule that breaks it is printed.
func one(t *testing.T, seed uint64) int {
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
		return result.Faults
	}
	if os.Getenv("CENSUS") != "" {
		census[kindOf(result.Broken)] = append(census[kindOf(result.Broken)], seed)
		return 0
	}
	if *scheduleFlag == "" {
		result = Shrink(t, seed, result)
	}
	t.Errorf("seed %d, setting %+v: %s\n\nThe schedule, shortened to %d steps; to replay it, write it to a file and run\n  make simulate-faults SEED=%d SCHEDULE=file\n%s",
		seed, newSetting(seed), result.Broken, len(result.Schedule), seed, FormatSchedule(result.Schedule))
	return 0
}
