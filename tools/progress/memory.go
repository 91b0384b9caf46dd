package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// least memory for a process of the compiler, below which Go's own settings are best.
const least = 512 << 20

// compilerMemory has the compiler collect garbage only when it has used its part of the memory that is free. For large
// packages that saved a quarter to nearly half of the processor time (docs/benchmarks.md). What the caller has set stays.
func compilerMemory() []string {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil // another system
	}
	return limits(string(data), runtime.NumCPU())
}

// limits share half of the available memory among as many processes as run at once.
func limits(meminfo string, processes int) []string {
	for line := range strings.Lines(meminfo) {
		rest, ok := strings.CutPrefix(line, "MemAvailable:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		each := min(kib<<10/2/int64(processes), 2<<30)
		if err != nil {
			return nil
		}
		if each < least { // said aloud, since tools/compiler.sh is generous where nothing is
			return []string{"GOGC=100"}
		}
		return []string{"GOGC=off", fmt.Sprintf("GOMEMLIMIT=%d", each)}
	}
	return nil
}
