package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/simulate/world"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// A simulation from the cluster begins with what runs there, and what a cluster ran is a trace.
func TestSimulateFromTheCluster(t *testing.T) {
	ns := cluster.Namespace(t)
	queues(t, ns, ns, "8")
	job := sandbox.Job(ns, "train", "main", 2, "4")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	short := sandbox.Job(ns, "short", "main", 1, "2")
	short.Spec.Template.Annotations[sandbox.RunFor] = "0s"
	cluster.Make(t, short)
	wait(t, short, func(j *batchv1.Job) bool { return j.Status.Succeeded == 1 })
	cluster.Make(t, job)
	wait(t, job, func(j *batchv1.Job) bool { return ptr.Deref(j.Status.Ready, 0) == 2 })

	trace := filepath.Join(t.TempDir(), "jobs.csv")
	if err := os.WriteFile(trace, fmt.Appendf(nil, "job_id,queue,submit_s,duration_s,gpus\nnext,%s/main,0,600,8\n", ns), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]float64{"--running-for 1h": 3600, "--empty": 0, "--running-for 1h --set queue/" + ns + ".quota=16": 3600} {
		var variants []world.Variant
		out := must(t, ns, "bin/elastic simulate -o json --trace "+trace+" --from-cluster "+flags)
		if err := json.Unmarshal([]byte(out), &variants); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		first, last := variants[0].Report, variants[len(variants)-1].Report
		if first.Ended != 1 || first.Delay.Mean != want || len(variants) == 2 && last.Delay.Mean != 0 {
			t.Errorf("%s: %s", flags, out)
		}
	}
	recorded := filepath.Join(t.TempDir(), "recorded.csv")
	must(t, ns, "bin/elastic record --hash -f "+recorded)
	out := must(t, ns, "bin/elastic simulate -o json --trace "+recorded+" --from-cluster --empty --map '*="+ns+"'")
	var variants []world.Variant
	if err := json.Unmarshal([]byte(out), &variants); err != nil || variants[0].Ended == 0 {
		t.Errorf("%v: %s", err, out)
	}
}

func wait(t *testing.T, job *batchv1.Job, done func(*batchv1.Job) bool) {
	t.Helper()
	sandbox.Eventually(t, "job "+job.Name, func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if !done(job) {
			return fmt.Errorf("its status is %+v", job.Status)
		}
		return nil
	})
}
