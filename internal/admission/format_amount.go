package admission

import (
	"strconv"
	"strings"
)

// formatAmount prints an amount the way Kubernetes prints the quantity.
func formatAmount(resource string, v int64) string {
	switch {
	case resource == CPU && v%1000 != 0:
		return strconv.FormatInt(v, 10) + "m"
	case resource == CPU:
		return withSuffix(v/1000, 1000, []string{"", "k", "M", "G", "T", "P"})
	case resource == "memory" || resource == "ephemeral-storage" || strings.HasPrefix(resource, "hugepages-"):
		return withSuffix(v, 1024, []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"})
	}
	return withSuffix(v, 1000, []string{"", "k", "M", "G", "T", "P"})
}

func withSuffix(v, base int64, suffixes []string) string {
	i := 0
	for v != 0 && v%base == 0 && i < len(suffixes)-1 {
		v /= base
		i++
	}
	return strconv.FormatInt(v, 10) + suffixes[i]
}
