// Package examples applies Kueue's public examples and looks at what becomes of
// them. Those in Kueue's Go module are always applied; those of its web site,
// which no module carries, where KUEUE_REPO names a Git repository of Kueue:
//
//	git clone https://github.com/kubernetes-sigs/kueue /tmp/kueue
//	KUEUE_REPO=/tmp/kueue go test ./test/examples
//
// docs/reference/kueue-examples.md is made from the list of examples by
// go test ./test/examples -run Reference -update.
package examples

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/checks/provisioning"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

var update = flag.Bool("update", false, "write docs/reference/kueue-examples.md")

const (
	module  = "sigs.k8s.io/kueue"
	version = "v0.19.2"
	siteDir = "site/static/examples/"
)

// example is a file, what must be there before, and what becomes of it.
type example struct {
	file  string
	with  []string
	setup *setup // other than the others'
	want  outcome
	uses  map[corev1.ResourceName]string // of devices, as its page says
	note  string
}

type outcome string

const (
	applies   outcome = "applies"              // everything in it is taken as it is
	ready     outcome = "queues are ready"     // and its queues can admit
	admitted  outcome = "admitted"             // and its jobs are
	refused   outcome = "refused, as by Kueue" // its own rules do not allow it
	elsewhere outcome = "another project's"    // the kind is not served here
)

// waiting: it applies, and its queue or job waits for a reason.
func waiting(reason string) outcome { return outcome("waits: " + reason) }

func (w outcome) reason() string { return strings.TrimPrefix(string(w), "waits: ") }

func viz(names ...string) (files []string) {
	for _, name := range names {
		files = append(files, "cmd/kueueviz/examples/"+name+".yaml")
	}
	return files
}

func site(files ...string) []string { return files }

var cluster *sandbox.Cluster

func TestMain(m *testing.M) {
	os.Exit(sandbox.Run(m, &cluster, sandbox.Options{
		Nodes: "4x8:H100-80G", Queue: configure, Scheme: []func(*apiruntime.Scheme) error{provisioning.AddToScheme},
	}))
}

// configure is what the examples' pages say of the configuration.
func configure(cfg *v1alpha1.QueueConfiguration) {
	cfg.AdmissionFairSharing = &kueueconfig.AdmissionFairSharing{
		UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}, UsageSamplingInterval: metav1.Duration{Duration: time.Minute},
	}
	for _, name := range []corev1.ResourceName{"gpucores", "gpumem"} {
		cfg.Resources.Transformations = append(cfg.Resources.Transformations, kueueconfig.ResourceTransformation{
			Input: "nvidia.com/" + name, Strategy: ptr.To(kueueconfig.Replace), MultiplyBy: "nvidia.com/gpu",
			Outputs: corev1.ResourceList{"nvidia.com/total-" + name: resource.MustParse("1")},
		})
	}
	cfg.Resources.DeviceClassMappings = []kueueconfig.DeviceClassMapping{{Name: "example.com/gpu", DeviceClassNames: []corev1.ResourceName{"gpu.example.com"}}}
}

// prepare gives the nodes the labels the examples' flavors name, and brings the
// CRDs of the jobs in.
func prepare(t *testing.T) {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := cluster.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		kind := []string{"on-demand", "spot"}[i%2]
		group := []string{"tas-group", "tas-group", "tas-group", "tas-node"}[i%4]
		patch := fmt.Sprintf(`{"metadata":{"labels":{"node-type":%q,"instance-type":"gpu","gpu":"on","cloud.provider.com/node-group":%q,
			"cloud.provider.com/topology-block":"b1","cloud.provider.com/topology-rack":"r%d"}}}`, kind, group, i/2)
		if err := cluster.Patch(t.Context(), &nodes.Items[i], client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver}}
	class.Spec.ExtendedResourceName = ptr.To("example.com/gpu")
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + driver + `"`}}}
	cluster.Make(t, class)
	// The clusters that examples send jobs to are all this one.
	text, err := os.ReadFile(cluster.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"worker1-secret", "worker2-secret"} {
		cluster.Make(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "elastic-queue", Name: name}, Data: map[string][]byte{kueue.MultiKueueConfigSecretKey: text}})
	}
	objects, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	more, err := crds.ProvisioningRequests()
	if err != nil {
		t.Fatal(err)
	}
	objects = append(objects, more...)
	for _, object := range objects {
		unstructured.RemoveNestedField(object.Object, "spec", "conversion") // its webhook is not here
		unstructured.RemoveNestedField(object.Object, "status")
		if err := cluster.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatalf("%s: %v", object.GetName(), err)
		}
	}
	if resettable, ok := cluster.RESTMapper().(apimeta.ResettableRESTMapper); ok {
		resettable.Reset()
	}
}

func TestExamples(t *testing.T) {
	prepare(t)
	tryAll(t, nil)
	if repo() == "" {
		t.Log("KUEUE_REPO names no repository of Kueue: the examples of its web site were left out")
		return
	}
	for _, s := range []*setup{&counters, &capacities} {
		t.Run(s.section, func(t *testing.T) {
			s.prepare(t)
			tryAll(t, s)
		})
	}
}

func tryAll(t *testing.T, s *setup) {
	for _, e := range list {
		if e.setup == s && (repo() != "" || !isSite(e.file)) {
			t.Run(e.file, func(t *testing.T) { try(t, e) })
		}
	}
}

func try(t *testing.T, e example) {
	objects := read(t, e.file)
	if e.want == elsewhere {
		for _, o := range objects {
			if err := cluster.Create(t.Context(), o); !apimeta.IsNoMatchError(err) {
				t.Errorf("%s %s: %v; this kind is said not to be served", o.GetKind(), o.GetName(), err)
			}
		}
		return
	}
	var there []*unstructured.Unstructured
	t.Cleanup(func() { remove(t, there) })
	for _, file := range e.with {
		more := read(t, file)
		there = append(there, more...)
		apply(t, more)
	}
	if e.want == refused {
		for _, o := range objects {
			if err := cluster.Create(t.Context(), o); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				t.Errorf("%s %s: %v; it is said to be refused", o.GetKind(), o.GetName(), err)
			}
		}
		return
	}
	there = append(there, objects...)
	apply(t, objects)
	for _, o := range objects {
		switch {
		case e.want == applies:
		case o.GetKind() == "ClusterQueue" && slices.ContainsFunc(objects, isJob):
		case o.GetKind() == "ClusterQueue":
			active := metav1.ConditionTrue
			if strings.HasPrefix(string(e.want), "waits") {
				active = metav1.ConditionFalse
			}
			waitFor(t, o, kueue.ClusterQueueActive, active, e.want.reason())
		case isJob(o) && e.want == admitted:
			if strings.HasPrefix(e.file, "provisioning/") {
				provision(t)
			}
			wl := workloadOf(t, o)
			waitFor(t, wl, kueue.WorkloadAdmitted, metav1.ConditionTrue, "")
			checkUse(t, wl, e.uses)
		case isJob(o):
			waitFor(t, workloadOf(t, o), kueue.WorkloadQuotaReserved, metav1.ConditionFalse, e.want.reason())
		}
	}
}

// provision says of the request there is what cluster-autoscaler would.
func provision(t *testing.T) {
	t.Helper()
	sandbox.Eventually(t, "a request for nodes", func(ctx context.Context) error {
		list := &provisioning.ProvisioningRequestList{}
		if err := cluster.List(ctx, list); err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("there are %d", len(list.Items))
		}
		request := &list.Items[0]
		for _, condition := range []string{provisioning.Accepted, provisioning.Provisioned} {
			apimeta.SetStatusCondition(&request.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition})
		}
		return cluster.Status().Update(ctx, request)
	})
}

func isJob(o *unstructured.Unstructured) bool {
	return o.GetLabels()["kueue.x-k8s.io/queue-name"] != "" && o.GetKind() != "ResourceClaimTemplate"
}

// apply creates objects as kubectl would, in the default namespace where they
// name none.
func apply(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		sandbox.Eventually(t, "creating "+o.GetKind()+" "+o.GetName()+o.GetGenerateName(), func(ctx context.Context) error {
			mapping, err := cluster.RESTMapper().RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
			if err != nil {
				return err
			}
			if o.GetNamespace() == "" && mapping.Scope.Name() == apimeta.RESTScopeNameNamespace {
				o.SetNamespace("default")
			}
			return cluster.Create(ctx, o)
		})
	}
}

// remove deletes what an example made and waits until it is gone: the next one
// may use the names again.
func remove(t *testing.T, objects []*unstructured.Unstructured) {
	ctx := context.Background()
	slices.Reverse(objects)
	for _, o := range objects {
		if o.GetUID() == "" {
			continue // it was never made
		}
		err := cluster.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground), client.GracePeriodSeconds(0))
		if client.IgnoreNotFound(err) != nil {
			t.Errorf("deleting %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	deadline := time.Now().Add(sandbox.Timeout)
	for _, o := range objects {
		for o.GetUID() != "" {
			err := cluster.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopy())
			if apierrors.IsNotFound(err) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s %s does not go: %v, finalizers %v", o.GetKind(), o.GetName(), err, o.GetFinalizers())
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func waitFor(t *testing.T, o client.Object, condition string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	if u, ok := o.(*unstructured.Unstructured); ok {
		current.SetGroupVersionKind(u.GroupVersionKind())
	}
	sandbox.Eventually(t, fmt.Sprintf("%s=%s of %s", condition, status, o.GetName()), func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(o), current); err != nil {
			return err
		}
		all, _, err := unstructured.NestedSlice(current.Object, "status", "conditions")
		if err != nil {
			return err
		}
		for _, c := range all {
			got := c.(map[string]any)
			if got["type"] == condition && got["status"] == string(status) && (status == metav1.ConditionTrue || got["reason"] == reason) {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", all)
	})
}

// workloadOf is the workload that describes a job, or the group a pod is in.
func workloadOf(t *testing.T, o *unstructured.Unstructured) *kueue.Workload {
	t.Helper()
	found := &kueue.Workload{}
	sandbox.Eventually(t, "a workload of "+o.GetKind()+" "+o.GetName(), func(ctx context.Context) error {
		list := &kueue.WorkloadList{}
		if err := cluster.List(ctx, list, client.InNamespace(o.GetNamespace())); err != nil {
			return err
		}
		for _, wl := range list.Items {
			mine := slices.ContainsFunc(wl.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == o.GetUID() })
			// Pods of a Deployment have workloads of their own.
			if mine || o.GetKind() == "Deployment" && strings.HasPrefix(wl.Name, "pod-"+o.GetName()) {
				wl.DeepCopyInto(found)
				return nil
			}
		}
		return fmt.Errorf("none of %d is its", len(list.Items))
	})
	return found
}

func repo() string { return os.Getenv("KUEUE_REPO") }

func isSite(file string) bool { return !strings.HasPrefix(file, "cmd/") }

// read is an example as it is in Kueue's tree at the version we build on.
func read(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	var data []byte
	var err error
	if isSite(file) {
		data, err = git("show", version+":"+siteDir+file)
	} else {
		data, err = os.ReadFile(filepath.Join(moduleDir(t), file))
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	objects, err := deploy.Decode(data)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return objects
}

func git(args ...string) ([]byte, error) {
	out, err := exec.Command("git", append([]string{"-C", repo()}, args...)...).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("git %v: %w: %s", args, err, failed.Stderr)
	}
	return out, err
}

func moduleDir(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	found, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if found != version {
		t.Fatalf("we build on %s %s: look at its examples, and change the version here", module, found)
	}
	return dir
}

// The list is complete: every manifest there is, and no other.
func TestListIsComplete(t *testing.T) {
	var want, got []string
	files, err := filepath.Glob(filepath.Join(moduleDir(t), "cmd/kueueviz/examples/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		want = append(want, "cmd/kueueviz/examples/"+filepath.Base(file))
	}
	if repo() != "" {
		out, err := git("ls-tree", "-r", "--name-only", version, siteDir)
		if err != nil {
			t.Fatal(err)
		}
		for file := range strings.Lines(string(out)) {
			if name := strings.TrimPrefix(strings.TrimSpace(file), siteDir); strings.HasSuffix(name, ".yaml") {
				want = append(want, name)
			}
		}
	}
	for _, e := range list {
		if repo() != "" || !isSite(e.file) {
			got = append(got, e.file)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the list has\n%s\nKueue has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Kueue's examples

What becomes of the manifests in Kueue's public examples, at ` + version + `, when they are applied to a cluster with Elastic.
Jobs whose operator is not part of Kubernetes were taken as far as their start.

Made from test/examples by ` + "`go test ./test/examples -run Reference -update`" + `;
` + "`KUEUE_REPO=<clone of Kueue> go test ./test/examples`" + ` applies every one of them and checks that the list is
complete. Without a clone it does so for those in Kueue's Go module.

- **applies**: everything in it is accepted. **queues are ready**: and its ClusterQueues can admit. **admitted**: and
  its jobs get their quota and are started.
- **waits**: it is accepted, and says with this reason what it waits for.
- **refused, as by Kueue**: Kueue's rules for the object, which are ours, do not allow it.
- **another project's**: the kind comes with that project, and so do its rules.

| example | outcome | |
|---|---|---|
`)
	for _, e := range list {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", e.file, e.want, e.note)
	}
	_, here, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(here), "../../docs/reference/kueue-examples.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := os.ReadFile(path); err != nil || string(was) != b.String() {
		t.Errorf("%s is not what the list says (%v): run go test ./test/examples -run Reference -update", path, err)
	}
}
