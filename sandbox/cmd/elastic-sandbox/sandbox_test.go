package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestSandbox follows one sandbox through its life: it runs, is killed, is
// continued with other nodes, and ends with its parent.
func TestSandbox(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	p := startReady(t, "--dir", dir, "--nodes", "2x8:H100-80G,1x0")
	t.Logf("ready in %.1fs", p.ready.Seconds)

	t.Run("version and APIs", func(t *testing.T) { testVersion(t, p) })
	t.Run("nodes", func(t *testing.T) { testNodes(t, p) })
	t.Run("a job completes", func(t *testing.T) { testJobCompletes(t, p, "done") })
	t.Run("a job fails", func(t *testing.T) { testJobFails(t, p) })
	t.Run("access", func(t *testing.T) { testAccess(t, p) })
	t.Run("a webhook on loopback", func(t *testing.T) { testWebhook(t, p) })
	t.Run("an aggregated API on loopback", func(t *testing.T) { testAggregation(t, p) })
	t.Run("a second run refuses", func(t *testing.T) {
		code, last := start(t, "--dir", dir).end(t)
		want := fmt.Sprintf("already running (pid %d)", p.cmd.Process.Pid)
		if code != exitInUse || last.Event != "error" || last.Message != want {
			t.Errorf("exit code %d, %+v; want %d and %q", code, last, exitInUse, want)
		}
	})

	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()

	p = startReady(t, "--dir", dir, "--nodes", "1x4:A100-40G,1x8:H100-80G")
	t.Run("a killed sandbox is continued", func(t *testing.T) {
		job, err := p.client(t).BatchV1().Jobs("default").Get(t.Context(), "done", metav1.GetOptions{})
		if err != nil || job.Status.Succeeded != 1 {
			t.Errorf("the job is gone or changed: %v, %+v", err, job.Status)
		}
		if got := nodeNames(t, p.client(t)); got != "a100-40g-0 h100-80g-0" {
			t.Errorf("nodes %s", got)
		}
		testJobCompletes(t, p, "again") // logs included, from kubelets on another port
	})
	t.Run("stdin closes", func(t *testing.T) {
		if err := p.stdin.Close(); err != nil {
			t.Fatal(err)
		}
		if code, last := p.end(t); code != 0 || last.Event != "stopped" {
			t.Errorf("exit code %d, %+v; stderr: %s", code, last, p.stderr)
		}
	})
	if p.stderr.Len() > 0 {
		t.Errorf("stderr: %s", p.stderr)
	}
}

// TestUnreadableState: data that cannot be read does not stop a start, and is not deleted. The API
// server alone will do for that.
func TestUnreadableState(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "etcd", "data", "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(db, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startReady(t, "--dir", dir, "--api-only")
	if names := nodeNames(t, p.client(t)); names != "" || len(p.ready.Components) != 0 {
		t.Errorf("beside the API server there are nodes %q and %v", names, p.ready.Components)
	}
	if !strings.Contains(strings.Join(p.before, "\n"), "cannot be read") {
		t.Errorf("it did not say so: %q", p.before)
	}
	if _, err := os.Stat(filepath.Join(dir, "etcd.unreadable", "data", "member", "snap", "db")); err != nil {
		t.Error(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, last := p.end(t); code != 0 || last.Event != "stopped" {
		t.Errorf("after SIGTERM: exit code %d, %+v", code, last)
	}
}

func TestBadCommandLine(t *testing.T) {
	for _, args := range [][]string{{"--dir", "x", "--nodes", "4x8"}, {"--dir", "x", "--listen", "here"}, {"--dir", "x", "--api-only", "--nodes", "1x0"}, {}} {
		p := start(t, args...)
		code, last := p.end(t)
		if code != exitUsage || last.Event != "" || p.stderr.Len() == 0 {
			t.Errorf("%v: exit code %d, %+v, stderr %q", args, code, last, p.stderr)
		}
	}
}

// testVersion: the server says what it is and serves what that release serves.
func testVersion(t *testing.T, p *process) {
	discovery := p.client(t).Discovery()
	version, err := discovery.ServerVersion()
	if err != nil || version.GitVersion != "v1.37.1" || version.Minor != "37" {
		t.Errorf("version %+v, %v", version, err)
	}
	for _, group := range []string{"resource.k8s.io/v1", "batch/v1", "apiregistration.k8s.io/v1", "apiextensions.k8s.io/v1"} {
		if _, err := discovery.ServerResourcesForGroupVersion(group); err != nil {
			t.Errorf("%s: %v", group, err)
		}
	}
}

func nodeNames(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	return strings.Join(names, " ")
}

func testNodes(t *testing.T, p *process) {
	client := p.client(t)
	if got := nodeNames(t, client); got != "cpu-0 h100-80g-0 h100-80g-1" {
		t.Fatalf("nodes %s", got)
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), "h100-80g-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[corev1.ResourceName]int64{
		"nvidia.com/gpu": 8, "elasticgpu.io/gpu-core": 800, "elasticgpu.io/gpu-memory": 8 * 81559, "cpu": 104, "pods": 110,
	} {
		if got := node.Status.Allocatable[resource]; got.Value() != want {
			t.Errorf("%s is %s, want %d", resource, got.String(), want)
		}
	}
	for label, want := range map[string]string{
		"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "elasticgpu.io/gpu-model": "H100-80G",
		"kubernetes.io/hostname": "h100-80g-1", "elasticai.io/rack": "h100-80g-rack-0", "type": "kwok",
	} {
		if got := node.Labels[label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	if len(node.Spec.Taints) > 0 {
		t.Errorf("taints %v", node.Spec.Taints)
	}
	// Nodes that others create are played as well.
	p.kubectl(t, "create", "-f", "testdata/node.yaml")
	eventually(t, "a node created by others becomes ready", func() bool {
		return strings.Contains(p.kubectl(t, "get", "node", "guest"), " Ready")
	})
	eventually(t, "it has a lease", func() bool {
		_, err := client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "guest", metav1.GetOptions{})
		return err == nil
	})
	p.kubectl(t, "delete", "node", "guest")
}

func newJob(name string, annotations map[string]string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{
						Name: "main", Image: "trainer", Command: []string{"train"},
						Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": *one}},
					}},
				},
			},
		},
	}
}

// runJob creates a job and returns its pod once the job has the condition.
func runJob(t *testing.T, p *process, job *batchv1.Job, condition batchv1.JobConditionType) corev1.Pod {
	t.Helper()
	client := p.client(t)
	if _, err := client.BatchV1().Jobs("default").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("job %s is %s", job.Name, condition), func() bool {
		got, err := client.BatchV1().Jobs("default").Get(t.Context(), job.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got.Status.Conditions {
			if c.Type == condition {
				return true
			}
		}
		return false
	})
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=" + job.Name})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	return pods.Items[0]
}

func testJobCompletes(t *testing.T, p *process, name string) {
	pod := runJob(t, p, newJob(name, map[string]string{"sandbox.elasticai.io/run-for": "1s"}), batchv1.JobComplete)
	if pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("the pod is %s", pod.Status.Phase)
	}
	logs := p.kubectl(t, "logs", "--follow", pod.Name)
	if !strings.Contains(logs, "would have run: train\n") || !strings.Contains(logs, "with exit code 0\n") {
		t.Errorf("logs %q", logs)
	}
}

func testJobFails(t *testing.T, p *process) {
	pod := runJob(t, p, newJob("fails", map[string]string{"sandbox.elasticai.io/run-for": "0s", "sandbox.elasticai.io/exit-code": "3"}), batchv1.JobFailed)
	if state := pod.Status.ContainerStatuses[0].State.Terminated; pod.Status.Phase != corev1.PodFailed || state == nil || state.ExitCode != 3 {
		t.Errorf("the pod is %s, %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
	}
}

// testAccess: a service account's token is issued and verified, and RBAC decides what it may do.
func testAccess(t *testing.T, p *process) {
	admin := p.client(t)
	token, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(p.config(t))
	config.BearerToken = token.Status.Token
	account, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	self, err := account.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || self.Status.UserInfo.Username != "system:serviceaccount:default:default" {
		t.Errorf("the token is for %+v, %v", self, err)
	}
	list := func() error {
		_, err := account.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(); !apierrors.IsForbidden(err) {
		t.Errorf("an unprivileged account may list secrets: %v", err)
	}
	p.kubectl(t, "create", "rolebinding", "reader", "--clusterrole=admin", "--serviceaccount=default:default")
	eventually(t, "a role binding lets the account list secrets", func() bool { return list() == nil })
	// A token that was not issued here is refused.
	config.BearerToken = "made up"
	stranger, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.CoreV1().Secrets("default").List(context.Background(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a made up token: %v", err)
	}
}
