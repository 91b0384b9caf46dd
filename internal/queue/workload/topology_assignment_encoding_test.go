package workload_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func hosts(names ...string) []workload.Domain {
	var out []workload.Domain
	for _, name := range names {
		out = append(out, workload.Domain{Values: []string{name}, Count: 1})
	}
	return out
}

func TestEncodeAssignment(t *testing.T) {
	var pools []string
	for _, pool := range []string{"a", "b"} {
		for i := range 40 {
			pools = append(pools, fmt.Sprintf("cluster-with-a-long-name-pool-%s-%03d.example.com", pool, i))
		}
	}
	for name, test := range map[string]struct {
		encoding workload.Encoding
		levels   []string
		domains  []workload.Domain
		want     string // JSON of the parts, or their number
	}{
		"one host": {domains: hosts("x1"), want: `[{"domainCount":1,"valuesPerLevel":[{"universal":"x1"}],"podCounts":{"universal":1}}]`},
		"what hosts share is said once": {domains: hosts("x1.local", "x2.local"),
			want: `[{"domainCount":2,"valuesPerLevel":[{"individual":{"prefix":"x","suffix":".local","roots":["1","2"]}}],"podCounts":{"universal":1}}]`},
		"beginning and end do not overlap": {domains: hosts("ababa", "aba"),
			want: `[{"domainCount":2,"valuesPerLevel":[{"individual":{"suffix":"aba","roots":["ab",""]}}],"podCounts":{"universal":1}}]`},
		"levels of their own": {levels: []string{"rack", "shelf"}, domains: []workload.Domain{{Values: []string{"r1", "s1"}, Count: 2}, {Values: []string{"r1", "t2"}, Count: 3}},
			want: `[{"domainCount":2,"valuesPerLevel":[{"universal":"r1"},{"individual":{"roots":["s1","t2"]}}],"podCounts":{"individual":[2,3]}}]`},
		"two long pools are two parts":       {domains: hosts(pools...), want: "2 parts"},
		"two long pools as one part":         {encoding: workload.Encoding{OnePart: true}, domains: hosts(pools...), want: "1 parts"},
		"two short pools are shorter as one": {domains: hosts("a-1", "a-2", "b-1"), want: "1 parts"},
		"without hosts nothing is cut apart": {levels: []string{"rack"}, domains: hosts(pools...), want: "1 parts"},
		"no domains":                         {want: `[]`},
	} {
		t.Run(name, func(t *testing.T) {
			if test.levels == nil {
				test.levels = []string{corev1.LabelHostname}
			}
			a := test.encoding.Assignment(test.levels, test.domains)
			data, err := json.Marshal(a.Slices)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(data); got != test.want && fmt.Sprintf("%d parts", len(a.Slices)) != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if got := workload.Domains(a); !reflect.DeepEqual(got, test.domains) {
				t.Errorf("it reads as %v", got)
			}
		})
	}
}

// Whatever the names are, an assignment reads as it was written.
func TestAssignmentReadsAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[ab-]{0,6}`)
		levels := []string{"rack", corev1.LabelHostname}
		seen := map[string]bool{}
		var domains []workload.Domain
		for range rapid.IntRange(1, 12).Draw(t, "domains") {
			d := workload.Domain{Values: []string{name.Draw(t, "rack"), name.Draw(t, "host")}, Count: rapid.IntRange(1, 3).Draw(t, "pods")}
			if key := fmt.Sprint(d.Values); !seen[key] {
				seen[key] = true
				domains = append(domains, d)
			}
		}
		for _, onePart := range []bool{false, true} {
			if got := workload.Domains(workload.Encoding{OnePart: onePart}.Assignment(levels, domains)); !reflect.DeepEqual(got, domains) {
				t.Fatalf("written %v, read %v", domains, got)
			}
		}
	})
}

// Forty thousand hosts of several pools fit into an object.
func TestLargeAssignmentIsSmall(t *testing.T) {
	var domains []workload.Domain
	for i := range 40_000 {
		domains = append(domains, workload.Domain{Values: []string{fmt.Sprintf("gke-cluster-in-a-region-pool-%02d-%05d", i/1000, i)}, Count: 1})
	}
	data, err := json.Marshal(workload.Encoding{}.Assignment([]string{corev1.LabelHostname}, domains))
	if err != nil || len(data) > 500_000 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}
