package multicluster

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// standing waits until a cluster stands so.
func standing(t *testing.T, cluster string, want metav1.ConditionStatus, reason string) *metav1.Condition {
	t.Helper()
	var found metav1.Condition
	wait(t, manager, &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, "Active="+string(want), func(c *kueue.MultiKueueCluster) error {
		active := apimeta.FindStatusCondition(c.Status.Conditions, kueue.MultiKueueClusterActive)
		if active == nil || active.Status != want || active.Reason != reason {
			return fmt.Errorf("conditions are %+v", c.Status.Conditions)
		}
		found = *active
		return nil
	})
	return &found
}

// A cluster that is lost for a while keeps its jobs. One that is lost for too
// long loses them to another; when it is back, what it still runs is removed.
func TestLost(t *testing.T) {
	ns := arena(t, "4", "0", "east", "west")
	job := forever(sandbox.Job(ns, "job", "main", 1, "1"))
	manager.Make(t, job)
	wl := runsIn(t, manager.WorkloadOf(t, job), "east")
	t.Cleanup(toEast.Mend)

	toEast.Cut()
	standing(t, "east", metav1.ConditionFalse, "ClientConnectionFailed")
	wait(t, manager, &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: ns}}, "one cluster less", func(check *kueue.AdmissionCheck) error {
		active := apimeta.FindStatusCondition(check.Status.Conditions, kueue.AdmissionCheckActive)
		if active == nil || active.Status != metav1.ConditionTrue || active.Reason != "SomeActiveClusters" || active.Message != "Inactive clusters: [east]" {
			return fmt.Errorf("conditions are %+v", check.Status.Conditions)
		}
		return nil
	})
	toEast.Mend()
	standing(t, "east", metav1.ConditionTrue, "Active")
	if now := runsIn(t, wl, "east"); now.Status.SchedulingStats != nil {
		t.Errorf("it was evicted: %+v", now.Status.SchedulingStats)
	}

	toEast.Cut()
	standing(t, "east", metav1.ConditionFalse, "ClientConnectionFailed")
	lostAfter := func(timeout *metav1.Duration) {
		manager.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) { cfg.MultiKueue.WorkerLostTimeout = timeout })
	}
	t.Cleanup(func() { lostAfter(nil) })
	lostAfter(&metav1.Duration{Duration: time.Second})
	patch(t, west, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}, quotaOf(ns, "4"))
	runsIn(t, wl, "west")
	if pods := podsIn(t, east, ns); len(pods) != 1 {
		t.Errorf("east, which nobody reaches, has %d pods of it", len(pods))
	}
	before := podsIn(t, west, ns)
	toEast.Mend()
	standing(t, "east", metav1.ConditionTrue, "Active")
	gone(t, east, ns, &kueue.WorkloadList{}, &batchv1.JobList{}, &corev1.PodList{})
	now := runsIn(t, wl, "west")
	if after := podsIn(t, west, ns); len(before) != 1 || len(after) != 1 || after[0].UID != before[0].UID {
		t.Errorf("west had %d pods of it and has %d: the one that it runs is to go on", len(before), len(after))
	}
	if n := now.Status.SchedulingStats.Evictions; len(n) != 1 || n[0].Count != 1 {
		t.Errorf("it was evicted as often as %+v says; it lost its place once", n)
	}
}

// A cluster that takes requests and answers none holds up no job for another.
func TestHanging(t *testing.T) {
	ns := arena(t, "4", "4", "east", "west")
	t.Cleanup(toEast.Mend)
	toEast.Stall()
	job := forever(sandbox.Job(ns, "job", "main", 1, "1"))
	manager.Make(t, job)
	wl := runsIn(t, manager.WorkloadOf(t, job), "west")
	standing(t, "east", metav1.ConditionFalse, "ClientConnectionFailed")
	toEast.Mend()
	standing(t, "east", metav1.ConditionTrue, "Active")
	gone(t, east, ns, &kueue.WorkloadList{}, &batchv1.JobList{})
	runsIn(t, wl, "west")
}

// quotaOf is a patch that gives a queue so many cards.
func quotaOf(flavor, cards string) string {
	return `{"spec":{"resourceGroups":[{"coveredResources":["nvidia.com/gpu"],"flavors":[{"name":"` + flavor + `","resources":[{"name":"nvidia.com/gpu","nominalQuota":"` + cards + `"}]}]}]}}`
}

func podsIn(t *testing.T, c *sandbox.Cluster, ns string) []corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	if err := c.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// The manager is killed while one job runs and another waits there. What ends
// meanwhile has ended when it is back, and nothing runs twice.
func TestManagerKilled(t *testing.T) {
	ns := arena(t, "2", "0", "east", "west")
	running, ending := forever(sandbox.Job(ns, "running", "main", 1, "1")), forever(sandbox.Job(ns, "ending", "main", 1, "1"))
	waiting := forever(sandbox.Job(ns, "waiting", "main", 1, "1"))
	manager.Make(t, running, ending)
	first, second := runsIn(t, manager.WorkloadOf(t, running), "east"), runsIn(t, manager.WorkloadOf(t, ending), "east")
	manager.Make(t, waiting)
	third := manager.WorkloadOf(t, waiting)
	condition(t, east, third, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)

	killed := manager.Queue(t).PID
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	pods := podsIn(t, east, ns)
	for i := range pods {
		if pods[i].Labels["job-name"] == "ending" {
			patch(t, east, &pods[i], `{"metadata":{"annotations":{"`+sandbox.RunFor+`":"0s"}}}`)
		}
	}
	condition(t, east, second, kueue.WorkloadFinished, metav1.ConditionTrue)
	condition(t, manager, second, kueue.WorkloadFinished, metav1.ConditionTrue)
	runsIn(t, third, "east")
	now := runsIn(t, first, "east")
	if now.Status.SchedulingStats != nil {
		t.Errorf("the one that ran was evicted: %+v", now.Status.SchedulingStats)
	}
	for _, pod := range podsIn(t, east, ns) {
		if pod.Labels["job-name"] == "running" && !contains(pods, pod.UID) {
			t.Errorf("pod %s of the job that ran is another", pod.Name)
		}
	}
}

func contains(pods []corev1.Pod, uid any) bool {
	for i := range pods {
		if pods[i].UID == uid {
			return true
		}
	}
	return false
}

// What bears our mark there and belongs to nothing here goes; what does not stays.
func TestOrphans(t *testing.T) {
	ns := arena(t, "0", "0", "east")
	spec := kueue.WorkloadSpec{QueueName: "main", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: sandbox.Job(ns, "x", "main", 1, "1").Spec.Template}}}
	ours := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ours", Labels: map[string]string{kueue.MultiKueueOriginLabel: "multikueue"}}, Spec: spec}
	theirs := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "theirs", Labels: map[string]string{kueue.MultiKueueOriginLabel: "another"}}, Spec: spec}
	job := sandbox.Job(ns, "job", "main", 1, "1")
	job.Labels[kueue.MultiKueueOriginLabel] = "multikueue"
	job.Annotations = map[string]string{"kueue.x-k8s.io/prebuilt-workload-name": "ours"} // as Kueue's copies have it
	east.Make(t, theirs, job, ours)
	gone(t, east, ns, &batchv1.JobList{})
	sandbox.Eventually(t, "only theirs", func(ctx context.Context) error {
		list := &kueue.WorkloadList{}
		if err := east.List(ctx, list, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Name != "theirs" {
			return fmt.Errorf("%d workloads are left", len(list.Items))
		}
		return nil
	})
}

// How a cluster is reached, and why it is not.
func TestConnections(t *testing.T) {
	good, err := kubeconfig(t.Context(), east, toEast.address())
	if err != nil {
		t.Fatal(err)
	}
	name := "reached"
	manager.Make(t, clusterBySecret(name, name))
	missing := standing(t, name, metav1.ConditionFalse, "BadKubeConfig")
	if missing.Message != `load client config failed: Secret "reached" not found` && missing.Message != `load client config failed: secrets "reached" not found` {
		t.Errorf("the message is %q", missing.Message)
	}
	key := secret(name, good)
	manager.Make(t, key)
	if connected := standing(t, name, metav1.ConditionTrue, "Active"); connected.Message != "Connected" {
		t.Errorf("the message is %q", connected.Message)
	}
	key.Data["kubeconfig"] = []byte("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: \"https://127.0.0.1\", insecure-skip-tls-verify: true}}]\ncontexts: [{name: c, context: {cluster: a}}]\ncurrent-context: c\n")
	if err := manager.Update(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if refused := standing(t, name, metav1.ConditionFalse, "InsecureKubeConfig"); refused.Message != "load client config failed: insecure TLS verification is not allowed for cluster a" {
		t.Errorf("the message is %q", refused.Message)
	}
	key.Data["kubeconfig"] = good
	if err := manager.Update(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	standing(t, name, metav1.ConditionTrue, "Active")

	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.MultiKueueControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: "kueue.x-k8s.io", Kind: "MultiKueueConfig", Name: name},
	}}
	manager.Make(t, check)
	active := func(status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		wait(t, manager, check, reason, func(check *kueue.AdmissionCheck) error {
			active := apimeta.FindStatusCondition(check.Status.Conditions, kueue.AdmissionCheckActive)
			if active == nil || active.Status != status || active.Reason != reason || active.Message != message {
				return fmt.Errorf("conditions are %+v", check.Status.Conditions)
			}
			return nil
		})
	}
	active(metav1.ConditionFalse, "BadConfig", `Cannot load the AdmissionChecks parameters: MultiKueueConfig.kueue.x-k8s.io "reached" not found`)
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"nowhere"}}}
	manager.Make(t, config)
	active(metav1.ConditionFalse, "NoUsableClusters", "Missing clusters: [nowhere]")
	patch(t, manager, config, `{"spec":{"clusters":["reached","nowhere"]}}`)
	active(metav1.ConditionTrue, "SomeActiveClusters", "Missing clusters: [nowhere]")
	patch(t, manager, config, `{"spec":{"clusters":["reached"]}}`)
	active(metav1.ConditionTrue, "Active", "The admission check is active")
}
