package cost

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const prices = `cloud,region,zone,instance_type,gpu,gpu_count,price_usd_hour,spot_usd_hour
aws,us-east-1,use1-az1,p5.48xlarge,H100,8,60,20
aws,eu-west-2,euw2-az3,p5.48xlarge,H100,8,55,16
lambda,us-west-1,,gpu_1x_h100,H100,1,3,
gcp,us-central1,a,n1-standard-8+T4x1,T4,1,0.7,0.3
aws,us-east-1,use1-az1,g6f.large,L4,0.125,0.2,
moon,sea,,lander,H100,8,1,
`

func try(t *testing.T, args ...string) (out, reported string, err error) {
	t.Helper()
	cmd := Command()
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.Execute()
	return stdout.String(), stderr.String(), err
}

func TestCost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prices.csv")
	if err := os.WriteFile(file, []byte(prices), 0o600); err != nil {
		t.Fatal(err)
	}
	out, reported, err := try(t, "--prices", file, "--gpu", "H100", "--gpus", "12", "--run-time", "10h", "--start-up", "30m")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(reported, `line 7, column cloud: unknown cloud "moon"; the row is left out`) {
		t.Errorf("reported %q", reported)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 {
		t.Fatalf("%s", out)
	}
	// 12 cards on demand: 12 of 1 at 3 for 10.5 hours, and 2 machines of 8 at 55.
	for i, want := range []string{"p5.48xlarge", "378.00", "1155.00"} {
		if !strings.Contains(lines[i+1], want) {
			t.Errorf("row %d: %s, want %s", i+1, lines[i+1], want)
		}
	}
	if fields := strings.Fields(lines[1]); fields[2] != "spot" || fields[6] != "2" || !strings.Contains(lines[1], "eu-west-2/euw2-az3") || fields[len(fields)-1] != "2" {
		t.Errorf("spot: %s", lines[1])
	}
	out, _, err = try(t, "--prices", file, "--gpus", "1", "--run-time", "1h", "--kind", "on-demand", "--cloud", "gcp", "-o", "json")
	if err != nil || !strings.Contains(out, `"expected"`) || strings.Contains(out, "aws") {
		t.Errorf("json: %s, %v", out, err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "give --prices"},
		{[]string{"--prices", file}, "--gpus 0"},
		{[]string{"--prices", file, "--gpus", "1"}, "--run-time"},
		{[]string{"--prices", file, "--gpus", "1", "--run-time", "1h", "--kind", "reserved"}, "want spot or on-demand"},
		{[]string{"--prices", file, "--gpus", "1", "--run-time", "1h", "--gpu", "B300"}, "no such machines"},
		{[]string{"--prices", file + "x", "--gpus", "1", "--run-time", "1h"}, "no such file"},
	} {
		if _, _, err := try(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.args, err, c.want)
		}
	}
}
