package simulate

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// What is wrong is told before the first run, and files that cannot be written take nothing away from the result.
func TestFilesBesideTheResult(t *testing.T) {
	docs, err := filepath.Abs(filepath.Dir(page))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	shape := []string{"--trace", docs + "/simulate/jobs.csv", "--shape", docs + "/simulate/queues.csv"}
	if _, err := try(append(shape, "--set", "queue/x.quota=1", "--timeline", "t.csv", "--plot", "p.svg")...); err == nil {
		t.Error("no error")
	}
	for _, name := range []string{"t.csv", "p.svg"} {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s is there, though nothing was run", name)
		}
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no file that cannot be written to")
	}
	if out, err := try(append(shape, "--plot", "/dev/full", "--timeline", "/dev/full")...); err == nil || !strings.Contains(out, "as it is  357") {
		t.Errorf("%v\n%s", err, out)
	}
	// A price and spot nodes of a model that one variant has are for that one.
	if out := run(t, append(shape, "--price", "B200=2", "--spot", "8h@B200", "--set", "+1x8:B200@vision")...); !strings.Contains(out, "MONEY") {
		t.Error(out)
	}
}

// Variants that ended different numbers of jobs are not compared by the means of those alone.
func TestVariantsThatEndedOtherJobs(t *testing.T) {
	t.Chdir(t.TempDir())
	jobs := "job_id,queue,submit_s,duration_s,gpus,status\na,q,0,3600,8,failed\nb,q,0,3600,16,\n"
	if err := os.WriteFile("jobs.csv", []byte(jobs), 0o600); err != nil {
		t.Fatal(err)
	}
	out := run(t, "--trace", "jobs.csv", "--nodes", "1x8", "--queue", "q", "--set", "+1x8")
	for _, want := range []string{"The variants ended different numbers of jobs", "  as it is  1 of 2  0.50 h\n", "  +1x8      2       0.50 h\n", "FAILED"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nlacks %q", out, want)
		}
	}
	same := run(t, "--trace", "jobs.csv", "--nodes", "2x8", "--queue", "q", "--set", "+1x8", "--start", "2026-12-01T08:00")
	if strings.Contains(same, "different numbers") || strings.Contains(same, "by --start") {
		t.Error(same)
	}
}

// Under several seeds, variants in which nodes are lost say how much their figures differ; the others do not.
func TestSeeds(t *testing.T) {
	docs, err := filepath.Abs(filepath.Dir(page))
	if err != nil {
		t.Fatal(err)
	}
	shape := []string{"--trace", docs + "/simulate/jobs.csv", "--shape", docs + "/simulate/queues.csv"}
	for _, wrong := range [][]string{{"--seeds", "0"}, {"--seeds", "2"}} {
		if out, err := try(append(shape, wrong...)...); err == nil || !strings.Contains(err.Error(), "nodes that are lost by chance") {
			t.Errorf("%v: %v\n%s", wrong, err, out)
		}
	}
	lossy := append(shape, "--set", "faults.every=6h,faults.down=2h")
	var variants []world.Variant
	if err := json.Unmarshal([]byte(run(t, append(lossy, "--seeds", "3", "-o", "json")...)), &variants); err != nil {
		t.Fatal(err)
	}
	over := variants[1].Seeds
	if variants[0].Seeds != nil || over == nil || over.Seeds != 3 || over.Delay.Least >= over.Delay.Most || over.Delay.Mean <= over.Delay.Least || over.Delay.Mean >= over.Delay.Most {
		t.Fatalf("%+v, %+v", variants[0].Seeds, over)
	}
	sum := 0.0
	for _, seed := range []string{"1", "2", "3"} {
		var one []world.Variant
		if err := json.Unmarshal([]byte(run(t, append(lossy, "--seed", seed, "-o", "json")...)), &one); err != nil {
			t.Fatal(err)
		}
		if mean := one[1].Delay.Mean; mean < over.Delay.Least || mean > over.Delay.Most {
			t.Errorf("seed %s: %v is not in %+v", seed, mean, over.Delay)
		}
		sum += one[1].Delay.Mean
	}
	if mean := sum / 3; math.Abs(mean-over.Delay.Mean) > 1e-6*mean {
		t.Errorf("%v, not %v", over.Delay.Mean, mean)
	}
}

// explain takes dates and days, answers as JSON, and tells what is odd.
func TestExplainTimesAndNotes(t *testing.T) {
	t.Chdir(t.TempDir())
	jobs := "job_id,queue,submit_s,duration_s,gpus,status\na,q,1767225600,360000,8,\nb,q,1767225610,3600,8,\nb,q,1767225620,3600,8,failed\n"
	if err := os.WriteFile("jobs.csv", []byte(jobs), 0o600); err != nil {
		t.Fatal(err)
	}
	shape := []string{"--trace", "jobs.csv", "--nodes", "1x8", "--queue", "q"}
	for at, want := range map[string]string{
		"2026-01-02": "at 24h0m0s, 2026-01-02 00:00 UTC: has waited 23h59m50s", "2026-01-01T12:00": "at 12h0m0s", "1d12h": "at 36h0m0s", "2d": "at 48h0m0s", "90m": "at 1h30m0s",
	} {
		got := run(t, append([]string{"explain", "b", "--at", at}, shape...)...)
		if !strings.Contains(got, want) || !strings.Contains(got, "2 jobs are named b; this is the first, submitted at 10s") {
			t.Errorf("%s: %s\nlacks %s", at, got, want)
		}
	}
	got := run(t, append([]string{"explain", "b", "--at", "1d", "-o", "json"}, shape...)...)
	for _, want := range []string{`"atSeconds": 86400`, `"time": "2026-01-02T00:00:00Z"`, `"position": 1`, `"notes"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
	if got := run(t, append(shape, "--start", "2027-01-01T00:00")...); !strings.Contains(got, "the first job of the trace is of 2026-01-01 00:00 UTC; by --start it comes on 2027-01-01 00:00 UTC") {
		t.Error(got)
	}
}
