package simulate

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestCostOutputsAndErrors(t *testing.T) {
	path, err := filepath.Abs(page)
	if err != nil {
		t.Fatal(err)
	}
	docs := filepath.Dir(path)
	data := []string{"cost", "--data", docs + "/simulate/clouds"}
	if got := run(t, append(data, "--jobs", "5", "--zones", "east-1a", "-o", "json")...); !strings.Contains(got, `"overBound"`) || !strings.Contains(got, `"zones": 1`) {
		t.Errorf("json: %s", got)
	}
	if got := run(t, append(data, "--trace", docs+"/simulate/jobs.csv")...); !strings.Contains(got, "elastic") {
		t.Errorf("trace: %s", got)
	}
	queue := append(data, "--flavors", "aws-2026-01-05-example.8xlarge=16")
	for _, more := range [][]string{{"--jobs", "5"}, {"--trace", docs + "/simulate/jobs.csv"}} {
		if got := run(t, append(queue, more...)...); !strings.Contains(got, "as-written") || !strings.Contains(got, "elastic-reporting") {
			t.Errorf("a queue, %v: %s", more, got)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"cost"}, "give --data"},
		{[]string{"cost", "--data", t.TempDir()}, "spot-prices.csv"},
		{append(data, "--market", "moon"), "there are aws-2026-01-05-example.8xlarge"},
		{append(data, "--flavors", "moon=4"), "--flavors moon=4: want a market"},
		{append(data, "--flavors", "aws-2026-01-05-example.8xlarge=-4"), "want a market and 1 to"},
		{append(queue, "--market", "moon"), "give --market or --flavors"},
		{append(data, "--jobs", "0"), "--jobs 0"},
		{append(data, "--deadline-factor", "0.5"), "--deadline-factor 0.5"},
		{append(data, "--start-up", "-1m"), "-1m0s is not between"},
		{append(data, "--deadline-extra", "300h"), "too short"},
		{append(data, "--trace", "x.csv"), "no such file"},
	} {
		if _, err := try(c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.args, err, c.want)
		}
	}
}
