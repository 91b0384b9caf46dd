package job

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; commit only what you understand")

// Every form of submit, with the manifest it writes.
var submits = map[string][]string{
	"tfjob-alone":  {"tfjob", "--name=simple", "--image=example.com/tf:1", "--queue=main", "'python mnist.py'"},
	"tfjob":        {"tf", "--name=mnist", "--image=example.com/tf:1", "--workers=2", "--ps=1", "--gpus=1", "--ps-cpu=2", "--worker-memory=8Gi", "--chief", "--evaluator", "--queue=main", "--", "python", "mnist.py", "--steps=10"},
	"tfjob-old":    {"tfjob", "--name=old", "--image=example.com/tf:1", "--workers=2", "--ps=1", "--psCpu=1", "--workingDir=/code", "--cleanTaskPolicy=All", "--psImage=example.com/ps:1", "python mnist.py"},
	"pytorchjob":   {"pytorchjob", "--name=torch", "--image=example.com/torch:2", "--workers=4", "--gpus=8", "--cpu=32", "--memory=256Gi", "--share-memory=64Gi", "--rdma", "--queue=main", "-p", "high", "torchrun train.py"},
	"mpijob":       {"mpi", "--name=ring", "--image=example.com/mpi:1", "--workers=2", "--gpus=4", "--retry=3", "mpirun python train.py"},
	"horovodjob":   {"hj", "--name=hvd", "--image=example.com/hvd:1", "--workers=2", "--gpus=1", "horovodrun python train.py"},
	"deepspeedjob": {"deepspeedjob", "--name=ds", "--image=example.com/ds:1", "--workers=2", "--gpus=8", "deepspeed train.py"},
	"xgboostjob":   {"xgboostjob", "--name=xgb", "--image=example.com/xgb:1", "--workers=3", "python train.py"},
	"paddlejob":    {"paddlejob", "--name=paddle", "--image=example.com/paddle:1", "--workers=2", "python train.py"},
	"jaxjob":       {"jaxjob", "--name=jax", "--image=example.com/jax:1", "--workers=2", "--gpus=4", "python train.py"},
	"rayjob":       {"rayjob", "--name=ray", "--image=example.com/ray:2", "--worker-replicas=3", "--worker-gpu=2", "--head-cpu=4", "--ray-version=2.40.0", "--queue=main", "python tune.py"},
	"sparkjob":     {"sparkjob", "--name=spark", "--image=example.com/spark:3.5", "--replicas=4", "--gpus=1", "--executor-memory-request=4g", "--queue=main"},
	"etjob":        {"et", "--name=grow", "--image=example.com/x:1", "--workers=2", "--gpus=1", "--min-workers=1", "--max-workers=4", "--retry=2", "horovodrun python train.py"},
	"volcanojob":   {"vj", "--name=vol", "--image=example.com/x:1", "--taskReplicas=3", "--taskCPU=500m", "--min-available=3", "run.sh"},
	"job":          {"job", "--name=plain", "--image=example.com/x:1", "--workers=2", "--gpucore=50", "--gpumemory=8", "--time=2h", "--workload-priority=urgent", "-e", "A=1", "-l", "team=vision", "-a", "note=hello", "--selector", "zone=a", "--toleration", "all", "--toleration", "dedicated=ml:NoSchedule,Equal", "-d", "datasets:/data", "--data-dir", "/scratch", "--image-pull-secret", "reg", "--queue=main", "python train.py"},
	"job-files":    {"job", "--name=files", "--image=example.com/x:1", "--config-file", "testdata/hyper.json:/etc/hyper.json", "--tensorboard", "--logdir=/data/logs", "-d", "logs:/data", "python train.py"},
	"jobset":       {"jobset", "--name=set", "--image=example.com/x:1", "--workers=4", "--gpus=8", "--retry=2", "--queue=main", "torchrun train.py"},
}

// dryRun runs submit without a cluster.
func dryRun(args ...string) (string, error) {
	var out bytes.Buffer
	root := &cobra.Command{Use: "elastic", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands(nil)...)
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"submit"}, args...))
	err := root.Execute()
	return out.String(), err
}

func TestSubmitWrites(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("ELASTIC_HOME", t.TempDir())
	for name, args := range submits {
		t.Run(name, func(t *testing.T) {
			got, err := dryRun(slices.Insert(slices.Clone(args), 1, "--dry-run", "--namespace=team")...)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "submit", name+".yaml")
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("submit %s writes\n%s\nwant\n%s", strings.Join(args, " "), got, want)
			}
			understood(t, got)
		})
	}
	for i := range forms {
		if _, ok := submits[forms[i].names[0]]; !ok {
			t.Errorf("no test submits a %s", forms[i].names[0])
		}
	}
}

// understood checks that the queue finds the pods of what submit wrote.
func understood(t *testing.T, manifest string) {
	t.Helper()
	objects, err := deploy.Decode([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds.Table() {
		if kind.GVK != objects[0].GroupVersionKind() {
			continue
		}
		if !kind.Suspends() {
			return // its pods are queued by themselves
		}
		if sets, err := kind.PodSets(t.Context(), nil, objects[0]); err != nil || len(sets) == 0 {
			t.Errorf("the queue finds no pods in it: %v", err)
		}
		return
	}
	t.Errorf("the queue does not know %s", objects[0].GroupVersionKind())
}

func TestSubmitRefuses(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("ELASTIC_HOME", t.TempDir())
	for want, args := range map[string][]string{
		"not found command args":         {"job", "--name=a", "--image=i"},
		"give the job a name":            {"job", "--image=i", "x"},
		"give the image":                 {"job", "--name=a", "x"},
		"cannot be a job's name":         {"job", "--name=A_b", "--image=i", "x"},
		"either --gpus":                  {"job", "--name=a", "--image=i", "--gpus=1", "--gpucore=50", "x"},
		"--gpumemory \"much\"":           {"job", "--name=a", "--image=i", "--gpumemory=much", "x"},
		"--ps-cpu \"two\"":               {"tfjob", "--name=a", "--image=i", "--ps=1", "--ps-cpu=two", "x"},
		"--env \"A\" has no '='":         {"job", "--name=a", "--image=i", "-e", "A", "x"},
		"write HERE:/PATH/THERE":         {"job", "--name=a", "--image=i", "--config-file=x", "x"},
		"write CLAIM:/PATH":              {"job", "--name=a", "--image=i", "--data=x", "x"},
		"kind \"bogus\" is not known":    {"bogus"},
		"output \"table\" is not known":  {"job", "--name=a", "--image=i", "--dry-run", "-o", "table", "x"},
		"no cluster is configured":       {"job", "--name=a", "--image=i", "x"},
		"open testdata/nothing: no such": {"job", "--name=a", "--image=i", "--dry-run", "--config-file=testdata/nothing:/x", "x"},
		"the manifest is empty":          {"-f", "/dev/null"},
	} {
		if out, err := dryRun(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("submit %s must be refused with %q, not: %v %s", strings.Join(args, " "), want, err, out)
		}
	}
}

func TestShellWords(t *testing.T) {
	for want, args := range map[string][]string{
		`python a.py && ls`:          {`python a.py && ls`},
		`python a.py --n 3`:          {`python`, `a.py`, `--n`, `3`},
		`echo 'a b' '$HOME' '' '"'`:  {`echo`, `a b`, `$HOME`, ``, `"`},
		`echo 'it'\''s' 'x;rm -r /'`: {`echo`, `it's`, `x;rm -r /`},
	} {
		if got := shellWords(args); got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}
