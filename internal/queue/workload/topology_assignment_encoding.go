package workload

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// What an assignment may have at most.
const (
	mostDomainsInPart = 100_000
	mostParts         = 1_000
)

// Encoding of topology assignments.
type Encoding struct {
	// OnePart writes all domains as one part, whatever their hostnames have in common.
	OnePart bool
}

// Assignment is the opposite of Domains, in as few bytes as the API has a form for: values that all domains of a part
// share are said once, as are the beginnings and ends of those that differ. Neighbours whose hostnames begin alike are
// a part of their own where that is shorter.
func (e Encoding) Assignment(levels []string, domains []Domain) *kueue.TopologyAssignment {
	if e.OnePart {
		return inParts(levels, [][]Domain{domains})
	}
	var runs [][]Domain
	for _, run := range runsOfHostnames(levels, domains) {
		runs = slices.AppendSeq(runs, slices.Chunk(run, mostDomainsInPart))
	}
	inRuns := inParts(levels, runs)
	if len(runs) <= 1 || len(domains) > mostDomainsInPart {
		return inRuns
	}
	if one := inParts(levels, [][]Domain{domains}); size(one) < size(inRuns) {
		return one
	}
	return inRuns
}

func size(a *kueue.TopologyAssignment) int {
	data, err := json.Marshal(a)
	if err != nil {
		panic("workload: a topology assignment cannot be encoded: " + err.Error()) // it is strings and numbers
	}
	return len(data)
}

func inParts(levels []string, runs [][]Domain) *kueue.TopologyAssignment {
	a := &kueue.TopologyAssignment{Levels: levels, Slices: []kueue.TopologyAssignmentSlice{}}
	for _, run := range runs {
		if len(run) > 0 {
			a.Slices = append(a.Slices, onePart(len(levels), run))
		}
	}
	return a
}

func onePart(levels int, domains []Domain) kueue.TopologyAssignmentSlice {
	part := kueue.TopologyAssignmentSlice{DomainCount: int32(len(domains))}
	for level := range levels {
		values := make([]string, len(domains))
		for i, d := range domains {
			values[i] = d.Values[level]
		}
		part.ValuesPerLevel = append(part.ValuesPerLevel, levelValues(values))
	}
	counts := make([]int32, len(domains))
	for i, d := range domains {
		counts[i] = int32(d.Count)
	}
	if len(slices.Compact(slices.Clone(counts))) == 1 {
		part.PodCounts.Universal = &counts[0]
	} else {
		part.PodCounts.Individual = counts
	}
	return part
}

// levelValues says what values share once, and the rest for each.
func levelValues(values []string) kueue.TopologyAssignmentSliceLevelValues {
	prefix, suffix, shortest := values[0], values[0], len(values[0])
	same := true
	for _, value := range values[1:] {
		same = same && value == values[0]
		shortest = min(shortest, len(value))
		prefix = prefix[:sharedBeginning(prefix, value)]
		suffix = suffix[len(suffix)-sharedEnd(suffix, value):]
	}
	if same {
		return kueue.TopologyAssignmentSliceLevelValues{Universal: &prefix}
	}
	if over := len(prefix) + len(suffix) - shortest; over > 0 { // as in ababa and aba
		prefix = prefix[:len(prefix)-over]
	}
	individual := &kueue.TopologyAssignmentSliceLevelIndividualValues{Roots: make([]string, len(values))}
	if prefix != "" {
		individual.Prefix = ptr.To(prefix)
	}
	if suffix != "" {
		individual.Suffix = ptr.To(suffix)
	}
	for i, value := range values {
		individual.Roots[i] = value[len(prefix) : len(value)-len(suffix)]
	}
	return kueue.TopologyAssignmentSliceLevelValues{Individual: individual}
}

func sharedBeginning(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func sharedEnd(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// runsOfHostnames cuts domains into runs of neighbours whose hostnames begin alike up to a dash. Long beginnings are
// tried first, and shorter ones where there would be too many runs.
func runsOfHostnames(levels []string, domains []Domain) [][]Domain {
	whole := [][]Domain{domains}
	if len(domains) <= 1 || len(levels) == 0 || levels[len(levels)-1] != corev1.LabelHostname {
		return whole
	}
	known, deepest := map[string]int{}, 0
	for _, d := range domains {
		all := beginnings(d.Values[len(levels)-1])
		deepest = max(deepest, len(all))
		for _, beginning := range all {
			known[beginning]++
		}
	}
	for depth := deepest; depth >= 1; depth-- {
		keys := make([]string, len(domains))
		for i, d := range domains {
			all := beginnings(d.Values[len(levels)-1])
			all = all[:min(depth, len(all))]
			for n := len(all) - 1; n >= 0 && keys[i] == ""; n-- {
				if known[all[n]] > 1 {
					keys[i] = all[n]
				}
			}
		}
		if runs := runsOf(domains, keys); parts(runs) <= mostParts {
			return runs
		}
	}
	return whole
}

// beginnings of a hostname, each up to one of its dashes, shortest first.
func beginnings(hostname string) []string {
	var out []string
	for at := 0; ; {
		next := strings.IndexByte(hostname[at:], '-')
		if next < 0 || at+next+1 >= len(hostname) {
			return out
		}
		at += next + 1
		out = append(out, hostname[:at])
	}
}

func runsOf(domains []Domain, keys []string) [][]Domain {
	var runs [][]Domain
	start := 0
	for i := 1; i < len(domains); i++ {
		if keys[i] != keys[start] {
			runs, start = append(runs, domains[start:i]), i
		}
	}
	return append(runs, domains[start:])
}

func parts(runs [][]Domain) int {
	n := 0
	for _, run := range runs {
		n += (len(run) + mostDomainsInPart - 1) / mostDomainsInPart
	}
	return n
}
