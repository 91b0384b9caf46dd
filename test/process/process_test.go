// Package process tests elastic-queue as an ordinary process: started by hand
// against a bare API server with Kueue's CRDs, with Kueue's configuration file.
package process

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/certs"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

var (
	bin        string
	kubeconfig string
	api        client.Client
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run starts an API server without nodes and without Elastic.
func run(m *testing.M) int {
	log.SetLogger(logr.Discard())
	_, file, _, _ := runtime.Caller(0)
	bin = filepath.Join(filepath.Dir(file), "..", "..", "bin")
	dir, err := os.MkdirTemp("", "elastic-process-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	stop, err := start(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the API server (is it built? run 'make build'):", err)
		return 1
	}
	defer stop()
	return m.Run()
}

func start(dir string) (stop func(), err error) {
	if kubeconfig, stop, err = sandbox.Bare(dir, "0x0"); err != nil {
		return nil, err
	}
	return stop, install()
}

// install brings Kueue's CRDs in, and nothing else.
func install() error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	scheme := apiruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kueue.AddToScheme(scheme)); err != nil {
		return err
	}
	if api, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	crds, err := deploy.CRDs()
	if err != nil {
		return err
	}
	crds = slices.DeleteFunc(crds, func(crd *unstructured.Unstructured) bool { return !strings.HasSuffix(crd.GetName(), ".kueue.x-k8s.io") })
	for _, crd := range crds {
		delete(crd.Object["spec"].(map[string]any), "conversion")
		if err := api.Create(context.Background(), crd); err != nil {
			return err
		}
	}
	for _, crd := range crds {
		if err := served(crd); err != nil {
			return fmt.Errorf("waiting for %s: %w", crd.GetName(), err)
		}
	}
	return nil
}

// served waits until objects of a new kind can be listed.
func served(crd *unstructured.Unstructured) error {
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "listKind")
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind(kind))
	return wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, sandbox.Timeout, true, func(ctx context.Context) (bool, error) {
		err := api.List(ctx, list)
		if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// process is an elastic-queue under way.
type process struct {
	cmd               *exec.Cmd
	metrics, webhooks string
	log               string
}

// launch starts elastic-queue as Kueue would be started: its file, certificates
// from a folder, plain metrics.
func launch(t *testing.T, flags ...string) *process {
	t.Helper()
	return launchWithLease(t, "leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s", flags...)
}

func launchWithLease(t *testing.T, lease string, flags ...string) *process {
	t.Helper()
	dir := t.TempDir()
	bundle, err := certs.Make([]string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": bundle.Certificate, "tls.key": bundle.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &process{metrics: free(t), webhooks: free(t), log: filepath.Join(dir, "log")}
	_, webhook, _ := net.SplitHostPort(p.webhooks)
	_, visibility, _ := net.SplitHostPort(free(t))
	config := filepath.Join(dir, "kueue.yaml")
	text := fmt.Sprintf(`apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
metrics: {bindAddress: %q}
health: {healthProbeBindAddress: "0"}
webhook: {host: 127.0.0.1, port: %s, certDir: %q}
visibilityServer: {bindAddress: 127.0.0.1, bindPort: %s}
internalCertManagement: {enable: false}
leaderElection: {leaderElect: true, %s, resourceLock: leases, resourceName: "", resourceNamespace: ""}
`, p.metrics, webhook, dir, visibility, lease)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(filepath.Join(bin, "elastic-queue"), append([]string{"--kubeconfig", kubeconfig, "--config", config}, flags...)...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(p.log)
			t.Logf("elastic-queue said:\n%s", said[max(0, len(said)-6000):])
		}
	})
	return p
}

func free(t *testing.T) string {
	t.Helper()
	address, err := local.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// stop sends a signal and wants a good end.
func (p *process) stop(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after %s it ended with %v, want 0", signal, err)
	}
}

// scrape waits until the metrics show something, and returns them.
func (p *process) scrape(t *testing.T, want string) (metrics string) {
	t.Helper()
	sandbox.Eventually(t, "metrics show "+want, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics+"/metrics", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		data, err := io.ReadAll(response.Body)
		if metrics = string(data); err == nil && !strings.Contains(metrics, want) {
			err = fmt.Errorf("they do not, in %d bytes", len(data))
		}
		return err
	})
	return metrics
}

// queue makes a namespace with a queue of four CPUs, and returns its name.
func queue(t *testing.T, name string) {
	t.Helper()
	cq := &kueue.ClusterQueue{}
	cq.Name = name
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
		Name: "default", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("4")}},
	}}}}
	flavor, ns, lq := &kueue.ResourceFlavor{}, &corev1.Namespace{}, &kueue.LocalQueue{}
	flavor.Name, ns.Name = "default", name
	lq.Namespace, lq.Name, lq.Spec.ClusterQueue = name, "main", kueue.ClusterQueueReference(name)
	for _, object := range []client.Object{flavor, ns, cq, lq} {
		sandbox.Eventually(t, "the CRDs are served", func(ctx context.Context) error {
			if err := api.Create(ctx, object); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
	}
}

func submit(t *testing.T, namespace string) *kueue.Workload {
	t.Helper()
	wl := &kueue.Workload{}
	wl.Namespace, wl.Name, wl.Spec.QueueName = namespace, "wl", "main"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}},
	}}}}
	if err := api.Create(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	return wl
}

// On a bare API server, without nodes, a workload is admitted by quota alone,
// as the field manager that Kueue's tools know; both signals end it well.
func TestInKueuesPlace(t *testing.T) {
	queue(t, "place")
	p := launch(t, "--feature-gates", "PartialAdmission=true,MultiKueue=false")
	wl := submit(t, "place")
	sandbox.Eventually(t, "it is admitted", func(ctx context.Context) error {
		if err := api.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
			return fmt.Errorf("conditions are %v", wl.Status.Conditions)
		}
		return nil
	})
	manager := ""
	for _, field := range wl.ManagedFields {
		if field.Subresource == "status" && strings.Contains(field.FieldsV1.GetRawString(), `"f:admission"`) {
			manager = field.Manager + "/" + string(field.Operation)
		}
	}
	if manager != "kueue-admission/Apply" {
		t.Errorf("status.admission belongs to %q", manager)
	}
	p.scrape(t, `kueue_admitted_workloads_total{cluster_queue="place",priority_class="",replica_role="leader"} 1`)
	p.scrape(t, `kueue_local_queue_admitted_active_workloads{name="main",namespace="place",replica_role="leader"} 1`)
	p.stop(t, syscall.SIGINT)
}

// Without the webhook, which would do it, new queues get their finalizer beside
// their status: neither write stands in the other's way, or is sent again.
func TestNewQueuesWithoutWebhook(t *testing.T) {
	p := launch(t)
	queue(t, "first")
	const queues = 30
	for i := range queues {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("new-%d", i)}}
		if err := api.Create(t.Context(), cq); err != nil {
			t.Fatal(err)
		}
	}
	for i := range queues {
		sandbox.Eventually(t, "the queue is in use", func(ctx context.Context) error {
			cq := &kueue.ClusterQueue{}
			if err := api.Get(ctx, client.ObjectKey{Name: fmt.Sprintf("new-%d", i)}, cq); err != nil {
				return err
			}
			if len(cq.Finalizers) != 1 || !apimeta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueActive) {
				return fmt.Errorf("finalizers %v, conditions %v", cq.Finalizers, cq.Status.Conditions)
			}
			return nil
		})
	}
	for line := range strings.Lines(p.scrape(t, `rest_client_requests_total{code="200"`)) {
		if strings.HasPrefix(line, "rest_client_requests_total") && strings.Contains(line, `"PATCH"`) {
			t.Log(line)
			if strings.Contains(line, `code="409"`) {
				t.Errorf("writes met newer objects: %s", line)
			}
		}
	}
}

// With --no-decisions nothing is admitted, but what another scheduler admits
// counts.
func TestNoDecisions(t *testing.T) {
	queue(t, "foreign")
	p := launch(t, "--no-decisions")
	wl := submit(t, "foreign")
	p.scrape(t, `kueue_pending_workloads{cluster_queue="foreign",replica_role="leader",status="active"} 1`)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
		t.Fatal(err)
	}
	if wl.Status.Admission != nil {
		t.Fatalf("it was admitted: %+v", wl.Status.Admission)
	}
	now := metav1.Now()
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "foreign", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: ptr.To(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "default"},
		ResourceUsage: corev1.ResourceList{"cpu": resource.MustParse("1")},
	}}}
	for _, name := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: "Foreign", LastTransitionTime: now})
	}
	if err := api.Status().Update(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "the queue counts it", func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := api.Get(ctx, client.ObjectKey{Name: "foreign"}, cq); err != nil {
			return err
		}
		if cq.Status.AdmittedWorkloads != 1 {
			return fmt.Errorf("it has %d admitted", cq.Status.AdmittedWorkloads)
		}
		return nil
	})
	p.stop(t, syscall.SIGTERM)
}

// A gate that cannot have the value is said at once.
func TestGateThatIsLocked(t *testing.T) {
	p := launch(t, "--feature-gates", "MultiKueueAllowInsecureKubeconfigs=true")
	giveUp := time.AfterFunc(sandbox.Timeout, func() { _ = p.cmd.Process.Kill() })
	defer giveUp.Stop()
	err := p.cmd.Wait()
	said, _ := os.ReadFile(p.log)
	if err == nil || !strings.Contains(string(said), "MultiKueueAllowInsecureKubeconfigs: it is locked to false, as in Kueue") {
		t.Errorf("it ended with %v and said %s", err, said)
	}
}

// Every path of Kueue's own webhook configuration is answered: a cluster whose
// deployment alone was replaced goes on.
func TestKueuesWebhookPaths(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/components/webhook/manifests.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p := launch(t)
	p.scrape(t, "kueue_build_info")
	paths := regexp.MustCompile(`path: (/\S+)`).FindAllStringSubmatch(string(manifests), -1)
	if len(paths) < 40 {
		t.Fatalf("only %d paths found", len(paths))
	}
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, path := range paths {
		status := 0
		sandbox.Eventually(t, "webhooks are served", func(ctx context.Context) error {
			// A review of nothing is answered by a webhook, if badly.
			review := strings.NewReader(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`)
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+p.webhooks+path[1], review)
			if err != nil {
				return err
			}
			request.Header.Set("Content-Type", "application/json")
			response, err := insecure.Do(request)
			if err != nil {
				return err
			}
			status = response.StatusCode
			return response.Body.Close()
		})
		if status != http.StatusOK {
			t.Errorf("%s is answered with %d", path[1], status)
		}
	}
}

// On an address that others reach, metrics are for those who may read them, and encrypted.
func TestMetricsAreForReaders(t *testing.T) {
	_, port, _ := net.SplitHostPort(free(t))
	launch(t, "--metrics-address", "0.0.0.0:"+port)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-"}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.Program("queue")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() == "ClusterRole" && object.GetName() == "elastic-metrics-reader" {
			if err := client.IgnoreAlreadyExists(api.Create(t.Context(), object)); err != nil {
				t.Fatal(err)
			}
		}
	}
	token := func(name string) string {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: name}}
		if err := api.Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}
		request := &authenticationv1.TokenRequest{}
		if err := api.SubResource("token").Create(t.Context(), account, request); err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
	reader, stranger := token("reader"), token("stranger")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "elastic-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace.Name, Name: "reader"}},
	}
	if err := api.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	anyCertificate := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, tc := range []struct {
		who, scheme, token string
		want               int
	}{
		{"a reader", "https", reader, http.StatusOK},
		{"a stranger", "https", stranger, http.StatusForbidden},
		{"nobody", "https", "", http.StatusUnauthorized},
		{"a reader in plain text", "http", reader, http.StatusBadRequest},
	} {
		sandbox.Eventually(t, "metrics answer "+tc.who, func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, tc.scheme+"://127.0.0.1:"+port+"/metrics", nil)
			if err != nil {
				return err
			}
			if tc.token != "" {
				request.Header.Set("Authorization", "Bearer "+tc.token)
			}
			response, err := anyCertificate.Do(request)
			if err != nil {
				return err
			}
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != tc.want {
				return fmt.Errorf("%s, want %d", response.Status, tc.want)
			}
			return nil
		})
	}
}
