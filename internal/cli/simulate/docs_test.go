package simulate

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what commands print into the page")

const page = "../../../docs/simulate.md"

// TestCommandsOfThePage runs every command of docs/simulate.md and compares what it prints with what the page says.
func TestCommandsOfThePage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(page)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(path))
	parts := strings.Split(string(text), "```sh\n")
	for i, part := range parts[1:] {
		command, rest, _ := strings.Cut(part, "\n```\n```text\n")
		said, after, found := strings.Cut(rest, "```\n")
		if !found {
			t.Fatalf("%s: no output follows", command)
		}
		got := run(t, words(command)...)
		if got != said && !*rewrite {
			t.Errorf("%s\nprints\n%s\nthe page says\n%s", command, got, said)
		}
		parts[i+1] = command + "\n```\n```text\n" + got + "```\n" + after
	}
	if len(parts) < 6 {
		t.Errorf("%d commands: has the page changed its form?", len(parts)-1)
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(strings.Join(parts, "```sh\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// words of a command line after "elastic simulate".
func words(command string) []string {
	list := strings.Fields(command)
	for i := range list {
		list[i] = strings.Trim(list[i], "'")
	}
	return list[2:]
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := try(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out
}

func try(args ...string) (string, error) {
	cmd := Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func TestOutputsAndErrors(t *testing.T) {
	path, err := filepath.Abs(page)
	if err != nil {
		t.Fatal(err)
	}
	docs := filepath.Dir(path)
	t.Chdir(t.TempDir())
	shape := []string{"--trace", docs + "/simulate/jobs.csv", "--shape", docs + "/simulate/queues.csv"}
	if got := run(t, append(shape, "-o", "json", "--plot", "p.svg", "--timeline", "t.csv", "--price", "2", "--set", "queue/*.backfill=None")...); !strings.Contains(got, `"queueingDelay"`) || !strings.Contains(got, `"money"`) {
		t.Errorf("json: %s", got)
	}
	if got := run(t, append(shape, "-o", "wide")...); !strings.Contains(got, "JCT MEAN  P50     P99       P99.9     DELAY MEAN") || !strings.Contains(got, "by size:") {
		t.Errorf("wide: %s", got)
	}
	timeline, err := os.ReadFile("t.csv")
	if err != nil || !strings.Contains(string(timeline), "production-000,production,started,,production-0") {
		t.Errorf("timeline: %.300s, %v", timeline, err)
	}
	for _, variant := range []string{",as it is\n", ",queue/*.backfill=None\n"} {
		if strings.Count(string(timeline), variant) < 3*357 { // each job is submitted, starts and ends
			t.Errorf("the timeline has too few lines of %q", variant)
		}
	}
	if plot, err := os.ReadFile("p.svg"); err != nil || !strings.Contains(string(plot), "polyline") {
		t.Errorf("plot: %v", err)
	}
	// What the command says of itself can be typed.
	for _, set := range []string{"queue/a.quota.gpu=64", "-2x8:H100-80G", "faults.spot=8h/10m@NODES"} {
		if help := Command().Long; !strings.Contains(help, set) {
			t.Errorf("the help lacks %s", set)
		}
	}
	if got := run(t, append(shape, "--map", "*=production", "--set", "queue/production.quota.gpu=64,queue/production.quota.production=60,queue/production.lendingLimit=1")...); !strings.Contains(got, "quota.gpu=64") {
		t.Errorf("%s", got)
	}
	// Jobs that never start are named, with why; those that ended at their limit are counted.
	jobs := "job_id,queue,submit_s,duration_s,gpus,limit_s\na,q,0,100,8,50\nbig,q,0,100,80,\nlarge,q,0,100,80,\nb,q,0,10,1,50\n"
	if err := os.WriteFile("jobs.csv", []byte(jobs), 0o600); err != nil {
		t.Fatal(err)
	}
	small := []string{"--trace", "jobs.csv", "--nodes", "1x8", "--queue", "q"}
	got := run(t, append(small, "--timeline", "t.csv")...)
	for _, want := range []string{"OVER LIMIT", "as it is: 2 jobs never start\n", "big, large  couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
	if got := run(t, append(small, "--until", "5s")...); !strings.Contains(got, "as it is: 3 jobs had not started when the run was stopped\n") {
		t.Errorf("stopped: %s", got)
	}
	if timeline, err := os.ReadFile("t.csv"); err != nil || !strings.Contains(string(timeline), "50,a,q,ended at its limit,") {
		t.Errorf("timeline: %.300s, %v", timeline, err)
	}
	if got := run(t, append(small, "-o", "json")...); !strings.Contains(got, `"endedAtLimit": 1`) || !strings.Contains(got, `"large"`) {
		t.Errorf("json: %s", got)
	}
	// Lines of a trace that are left out are told, with why.
	pods := "name,num_gpu,gpu_milli,creation_time,deletion_time\na,1,1000,0,100\nb,1,500,0,100\nc,1,250,0,100\nd,1,1000,0,\n"
	if err := os.WriteFile("pods.csv", []byte(pods), 0o600); err != nil {
		t.Fatal(err)
	}
	openb := []string{"--trace", "pods.csv", "--nodes", "1x8", "--queue", "default"}
	if got, want := run(t, openb...), "3 of 4 lines of the trace are left out: asks for part of a card (2), no end (1)\n"; !strings.Contains(got, want) {
		t.Errorf("%s\nlacks %s", got, want)
	}
	if got := run(t, "cost", "--data", docs+"/simulate/clouds", "--trace", "pods.csv"); !strings.Contains(got, "3 of 4 lines of the trace are left out") {
		t.Errorf("cost: %s", got)
	}
	if got := run(t, append(openb, "-o", "json")...); !strings.Contains(got, `"asks for part of a card": 2`) {
		t.Errorf("json: %s", got)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "give --trace"},
		{[]string{"--trace", "x.csv"}, "give the cluster"},
		{[]string{"--trace", "x.csv", "--nodes", "1x8"}, "no such file"},
		{[]string{"--trace", "x.csv", "--nodes", "one"}, "want COUNTxCARDS"},
		{[]string{"--trace", docs + "/simulate/jobs.csv", "--nodes", "1x8"}, "--map production=QUEUE"},
		{append(shape, "--map", "a=b"), "TO is a queue of the cluster"},
		{append(shape, "--restart", "soon"), "--restart soon"},
		{append(shape, "--price", "cheap"), "--price cheap"},
		{append(shape, "--spot", "often"), "--spot often: want EVERY"},
		{append(shape, "--spot", "8h/-1m"), "--spot 8h/-1m: want EVERY"},
		{append(shape, "--stock-out", "48h-24h@H100"), "--stock-out 48h-24h@H100: want FROM-TO"},
		{append(shape, "--set", "queue/x.quota=1"), "there is no queue x"},
		{append(shape, "--assume-limits", "0.5"), "--assume-limits 0.5: want 1 or more"},
		{append(shape, "--fault-every", "-1h"), "--fault-every -1h0m0s: want a time of a second or more, or 0"},
		{append(shape, "--checkpoint", "500ms"), "--checkpoint 500ms: want a time of a second or more"},
		{append(shape, "--until", "-1s"), "--until -1s"},
		{append(shape, "--waiting-for", "-1s"), "--waiting-for -1s"},
		{append(shape, "--set", "faults.every=5ms"), "want a time"},
		{append(shape, "--spot", "8h@TYPO"), "--spot or --stock-out: no node is TYPO"},
		{append(shape, "--stock-out", "1h-2h@TYPO"), "no node is TYPO"},
		{append(shape, "--set", "faults.spot=8h@TYPO"), "no node is TYPO"},
		{append(shape, "--price", "TYPO=2"), "--price: no node is TYPO"},
		{append(shape, "--map", "typo=vision"), "--map typo=vision: no job of the trace is in queue typo; they are in production, research, vision"},
		{append(shape, "--set", "queue/vision.weight=2", "--set", "queue/x.quota=1", "--timeline", "not-made"), "there is no queue x"},
		{append(shape, "--plot", "no/such/folder.svg", "--set", "queue/vision.weight=2"), "--plot: open no/such/folder.svg"},
		{[]string{"explain", "vision-001"}, "give --trace"},
		{append([]string{"explain", "vision-001", "--at", "soon"}, shape...), "give --at"},
		{append([]string{"explain", "vision-001", "--at", "2023-12-31"}, shape...), "the trace begins later"},
	} {
		if _, err := try(c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.args, err, c.want)
		}
	}
}
