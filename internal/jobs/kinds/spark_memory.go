package kinds

import (
	"fmt"
	"strconv"
	"strings"
)

// sparkMemory is the memory Spark requests for a process: its heap plus an overhead, which is
// given, or a share of the heap and at least 384 MiB.
func sparkMemory(heap, overhead, factor string) (int64, error) {
	memory, err := javaBytes(heap)
	if err != nil {
		return 0, err
	}
	if overhead != "" {
		extra, err := javaBytes(overhead)
		return memory + extra, err
	}
	share := 0.1
	if factor != "" {
		if share, err = strconv.ParseFloat(factor, 64); err != nil {
			return 0, fmt.Errorf("memory overhead factor: %w", err)
		}
	}
	const least = 384 << 20
	return memory + max(int64(share*float64(memory)), least), nil
}

// javaBytes reads a size as the JVM does: powers of two, and MiB where there is no unit.
func javaBytes(text string) (int64, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	s = strings.TrimSuffix(strings.TrimSuffix(s, "b"), "i")
	shift := 20
	if i := strings.IndexAny(s, "kmgtp"); i >= 0 && i == len(s)-1 {
		shift = 10 * (1 + strings.IndexByte("kmgtp", s[i]))
		s = s[:i]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not an amount of memory", text)
	}
	return n << shift, nil
}
