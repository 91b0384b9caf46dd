package throughput

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// childrenCPU is the processor time that each child of this process has used, by name.
func childrenCPU() map[string]time.Duration {
	const ticks = 100 // a second, on every Linux
	used := map[string]time.Duration{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		open, shut := strings.IndexByte(string(data), '('), strings.LastIndexByte(string(data), ')')
		fields := strings.Fields(string(data[shut+1:]))
		if parent, _ := strconv.Atoi(fields[1]); parent != os.Getpid() {
			continue
		}
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		used[string(data[open+1:shut])] += time.Duration(user+system) * time.Second / ticks
	}
	return used
}

func since(before map[string]time.Duration) string {
	var words []string
	for name, now := range childrenCPU() {
		words = append(words, fmt.Sprintf("%s %.1fs", name, (now-before[name]).Seconds()))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}
