package simulate

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elastic-ai/elastic/internal/placement"
)

const (
	nodesCSV = `sn,cpu_milli,memory_mib,gpu,model
n1,16000,65536,2,T4
n2,16000,65536,2,T4
n3,32000,65536,0,
`
	podsCSV = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time
p1,4000,1024,1,500,,LS,0,100
p2,4000,1024,1,500,T4|A10,LS,10,60.0
p3,4000,1024,2,1000,,BE,20,120
p4,4000,1024,0,0,,BE,20,120
p5,4000,1024,2,1000,,BE,30,80
`
)

func files(t *testing.T, nodes, pods string) PlacementOptions {
	t.Helper()
	dir := t.TempDir()
	opts := PlacementOptions{Nodes: filepath.Join(dir, "nodes.csv"), Pods: filepath.Join(dir, "pods.csv")}
	for path, text := range map[string]string{opts.Nodes: nodes, opts.Pods: pods} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return opts
}

func TestReadTrace(t *testing.T) {
	opts := files(t, nodesCSV, podsCSV)
	nodes, err := ReadNodes(opts.Nodes)
	if err != nil || len(nodes) != 3 || len(nodes[0].Cards) != 2 || len(nodes[2].Cards) != 0 || nodes[1].Resources["cpu"] != 16000 {
		t.Fatalf("nodes %v, %v", nodes, err)
	}
	pods, err := ReadPods(opts.Pods)
	if err != nil || len(pods) != 5 {
		t.Fatalf("pods %v, %v", pods, err)
	}
	c := pods[1].Containers[0].Cards
	if c.Count != 1 || c.Core != 500 || c.Exclusive || !slices.Equal(c.Models, []string{"T4", "A10"}) || pods[1].Deleted != 60 {
		t.Errorf("p2 asks for %+v and ends at %d", c, pods[1].Deleted)
	}
	if c := pods[2].Containers[0].Cards; c.Count != 2 || !c.Exclusive || pods[2].Demand != 2000 {
		t.Errorf("p3 asks for %+v, demand %d", c, pods[2].Demand)
	}
	if pods[3].Containers != nil || pods[3].Demand != 0 {
		t.Errorf("p4 asks for cards: %+v", pods[3])
	}
}

func TestReadTraceNamesTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"sn,cpu_milli,memory_mib,gpu,model\nn1,many,1,1,T4\n": "line 2: column cpu_milli",
		"sn,memory_mib,gpu,model\nn1,1,1,T4\n":                "line 2: no column cpu_milli",
		"":                                                    "EOF",
	} {
		opts := files(t, text, podsCSV)
		if _, err := ReadNodes(opts.Nodes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestStreamKeepsItsPromises(t *testing.T) {
	opts := files(t, nodesCSV, podsCSV)
	nodes, _ := ReadNodes(opts.Nodes)
	pods, _ := ReadPods(opts.Pods)
	for seed := range int64(20) {
		_, a := stream(nodes, pods, 5, seed)
		again, b := stream(nodes, slices.Clone(pods), 5, seed)
		var demand int64
		seen := map[string]bool{}
		for i := range a {
			if a[i].Key != b[i].Key {
				t.Fatalf("seed %d: two streams", seed)
			}
			if seen[a[i].Key] {
				t.Fatalf("seed %d: %s twice", seed, a[i].Key)
			}
			seen[a[i].Key] = true
			demand += a[i].Demand
		}
		// 4 cards, five times over, and no pod asks for more than two.
		if demand > 20000 || demand <= 18000 {
			t.Fatalf("seed %d: demand %d", seed, demand)
		}
		for _, p := range pods {
			if !seen[p.Key] {
				t.Fatalf("seed %d: %s is missing", seed, p.Key)
			}
		}
		if len(again) != len(nodes) {
			t.Fatalf("seed %d: %d nodes", seed, len(again))
		}
	}
}

// One node, two cards: what any policy allocates is known by hand.
func TestPlacementCountsWhatIsLeft(t *testing.T) {
	opts := files(t, "sn,cpu_milli,memory_mib,gpu,model\nn1,16000,65536,2,T4\n",
		"name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1000,1,1,600\np2,1000,1,1,600\np3,1000,1,1,600\n")
	opts.Policies, opts.Seeds, opts.Ratio = []string{"fragmentation", "fgd", "random"}, 3, 1.3
	runs, err := Placement(opts)
	if err != nil || len(runs) != 9 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	for _, r := range runs {
		// 0.6 + 0.6 of two cards, and the third pod (90 % arrived) finds no place.
		if got := r.Unallocated(100); got < 0.3999 || got > 0.4001 {
			t.Errorf("%s seed %d: %.4f unallocated, want 0.4", r.Policy, r.Seed, got)
		}
		if r.Dropped != r.Pods-2 {
			t.Errorf("%s: %d of %d dropped", r.Policy, r.Dropped, r.Pods)
		}
	}
}

func TestOutputs(t *testing.T) {
	opts := files(t, nodesCSV, podsCSV)
	opts.Policies, opts.Seeds = []string{"binpack", "spread"}, 2
	var table, figures bytes.Buffer
	plot := filepath.Join(t.TempDir(), "plot.svg")
	if err := WritePlacement(&table, opts, "", plot); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(table.String(), "\n"); lines != 3 || !strings.Contains(table.String(), "spread") {
		t.Errorf("table:\n%s", table.String())
	}
	if err := WritePlacement(&figures, opts, "json", ""); err != nil {
		t.Fatal(err)
	}
	var reports []Report
	if err := json.Unmarshal(figures.Bytes(), &reports); err != nil || len(reports) != 2 || reports[0].Seeds != 2 || len(reports[0].Curve) < 100 {
		t.Errorf("json %v, %d reports", err, len(reports))
	}
	svg, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("plot is not XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 2 {
		t.Errorf("%d curves in the plot, want 2", lines)
	}
	if err := WritePlacement(io.Discard, opts, "yaml", ""); err == nil {
		t.Error("output yaml was accepted")
	}
	opts.Policies = []string{"nonsense"}
	if err := WritePlacement(io.Discard, opts, "", ""); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("unknown policy: %v", err)
	}
}

func TestClockOrder(t *testing.T) {
	var c Clock
	var got []string
	say := func(s string) func() { return func() { got = append(got, s) } }
	c.At(5, say("late"))
	c.At(1, func() {
		got = append(got, "first")
		c.At(0, say("past")) // runs now
		c.At(5, say("later"))
	})
	c.At(1, say("second"))
	c.Run()
	if want := []string{"first", "second", "past", "late", "later"}; !slices.Equal(got, want) || c.Now() != 5 {
		t.Errorf("%v at %d, want %v at 5", got, c.Now(), want)
	}
}

// Two nodes of two cards: p1 and p2 share a card, p3 takes the other node, p5 waits until p2 and p1
// are gone; then all is taken.
func TestReplayWaits(t *testing.T) {
	opts := files(t, nodesCSV, podsCSV)
	nodes, _ := ReadNodes(opts.Nodes)
	pods, _ := ReadPods(opts.Pods)
	r, err := Replay(nodes, pods, "binpack")
	if err != nil {
		t.Fatal(err)
	}
	want := Replayed{Policy: "binpack", Pods: 5, Waited: 1, MeanWait: 14, MaxWait: 70, Busiest: 1}
	if r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	pods = append(pods, TracePod{Pod: placement.Pod{Key: "huge", Containers: []placement.Container{{Cards: placement.CardRequest{Count: 3, Exclusive: true}}}}})
	if r, _ = Replay(nodes, pods, "binpack"); r.Never != 1 {
		t.Errorf("%d never started, want 1", r.Never)
	}
}

func TestDecisionsKeepsTheClusterFull(t *testing.T) {
	took, err := Decisions("fragmentation", 20, 8, 0.8, 200)
	if err != nil || len(took) != 200 || took.At(0.5) <= 0 || took.At(1) < took.At(0.5) {
		t.Fatalf("%d decisions, %v", len(took), err)
	}
}
