package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/simulate/world"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// A simulation from the cluster begins with what runs and waits there, by elastic-queue's own configuration; and what a cluster
// ran is a trace.
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
	waitsNow(t, ns, trace)
	readsConfiguration(t, ns, trace)
	recorded := filepath.Join(t.TempDir(), "recorded.csv")
	must(t, ns, "bin/elastic record --hash -f "+recorded)
	out := must(t, ns, "bin/elastic simulate -o json --trace "+recorded+" --from-cluster --empty --map '*="+ns+"'")
	var variants []world.Variant
	if err := json.Unmarshal([]byte(out), &variants); err != nil || variants[0].Ended == 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// waitsNow has a job wait in the cluster, which goes before those of the trace.
func waitsNow(t *testing.T, ns, trace string) {
	t.Helper()
	waits := sandbox.Job(ns, "waits", "main", 1, "1")
	cluster.Make(t, waits)
	cluster.WorkloadOf(t, waits)
	var variants []world.Variant
	out := must(t, ns, "bin/elastic simulate -o json --trace "+trace+" --from-cluster --running-for 1h --waiting-for 10m")
	if err := json.Unmarshal([]byte(out), &variants); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r := variants[0].Report; r.Found == 0 || r.FoundWaiting == 0 || r.Jobs != 1 || r.Delay.Mean != 3600+600 {
		t.Errorf("with a job that waits: %s", out)
	}
}

// readsConfiguration has elastic-queue's configuration in the cluster, where the chart puts it.
func readsConfiguration(t *testing.T, ns, trace string) {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "elastic-queue-configuration"}}
	config.Data = map[string]string{"queue.yaml": "apiVersion: elasticai.io/v1alpha1\nkind: QueueConfiguration\npreemptAfter: 2h\n"}
	cluster.Make(t, config)
	simulate := "bin/elastic simulate --trace " + trace + " --from-cluster --empty"
	if out, err := shell(t, ns, simulate); err == nil || !strings.Contains(out, "elastic-queue's configuration: preemptAfter: 2h0m0s must be") {
		t.Errorf("a configuration that elastic-queue refuses: %v: %s", err, out)
	}
	config.Data["queue.yaml"] = strings.Replace(config.Data["queue.yaml"], "2h", "10m", 1)
	if err := cluster.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	must(t, ns, simulate)
	if err := cluster.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
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
