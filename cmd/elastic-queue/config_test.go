package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/jobs"
	"github.com/elastic-ai/elastic/internal/program"
	"github.com/elastic-ai/elastic/internal/queue/placer"
)

func load(t *testing.T, file string) (*v1alpha1.QueueConfiguration, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := v1alpha1.NewQueueConfiguration()
	return cfg, program.LoadConfig(path, cfg, formats())
}

// The file that Kueue installs is read as it is.
func TestKueuesOwnFile(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/components/manager/controller_manager_config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := load(t, string(file))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Metrics.BindAddress != ":8443" || cfg.Health.BindAddress != ":8081" || cfg.Webhook.Port != 9443 ||
		cfg.Webhook.CertDir != "/tmp/k8s-webhook-server/serving-certs" || cfg.Webhook.SecretName != "kueue-webhook-server-cert" {
		t.Errorf("endpoints are not as in the file: %+v %+v %+v", cfg.Metrics, cfg.Health, cfg.Webhook)
	}
	if cfg.LeaderElection.Name != "c1f6bfd2.kueue.x-k8s.io" || cfg.LeaderElection.Namespace != "kueue-system" || !*cfg.LeaderElection.Enabled {
		t.Errorf("leader election is not as in the file: %+v", cfg.LeaderElection)
	}
	if cfg.ClientConnection != (v1alpha1.ClientConnection{QPS: 300, Burst: 500}) || cfg.Controllers.Concurrency["Job.batch"] != 5 {
		t.Errorf("limits are not as in the file: %+v %+v", cfg.ClientConnection, cfg.Controllers)
	}
	options := jobOptions(cfg, features.Set{})
	if !slices.Contains(options.BuiltIn, "ray.io/rayjob") || slices.Contains(options.BuiltIn, "kubeflow.org/tfjob") {
		t.Errorf("kinds of jobs are %v", options.BuiltIn)
	}
	if rules, err := queueOptions(cfg, features.Set{}); err != nil || rules.LeaveOutEvents {
		t.Errorf("with Kueue's file every event is recorded: %v", err)
	}
	cfg.Recommend()
	if rules, err := queueOptions(cfg, features.Set{}); err != nil || !rules.LeaveOutEvents {
		t.Errorf("what is recommended does not reach the events: %v", err)
	}
	if *cfg.Placement.Enabled || !cfg.Placement.IgnoreAnnotatedPods {
		t.Error("with Kueue's file nodes are looked at for topologies alone, and pods with their annotations are Workloads'")
	}
}

func TestFilesOfKueue(t *testing.T) {
	const v1, v2 = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n", "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
	for name, tc := range map[string]struct {
		file  string
		want  string // part of the error; empty means it loads
		check func(*v1alpha1.QueueConfiguration) bool
	}{
		"an empty file has Kueue's defaults": {file: v2, check: func(c *v1alpha1.QueueConfiguration) bool {
			return c.WaitForPodsReady.Timeout.Duration == 30*time.Minute && c.Metrics.CertDir == "" && c.Visibility.Port == 8082 && c.QueueMetrics.LocalQueues.Enable
		}},
		"the older version does not wait for pods": {file: v1, check: func(c *v1alpha1.QueueConfiguration) bool { return c.WaitForPodsReady == nil }},
		"unless it says so": {file: v1 + "waitForPodsReady: {enable: true}\n", check: func(c *v1alpha1.QueueConfiguration) bool {
			return c.WaitForPodsReady.Timeout.Duration == 5*time.Minute && *c.WaitForPodsReady.BlockAdmission
		}},
		"fair sharing of the older version": {file: v1 + "fairSharing: {enable: true}\n", check: func(c *v1alpha1.QueueConfiguration) bool {
			return slices.Equal(c.FairSharing.PreemptionStrategies, []v1beta2.PreemptionStrategy{v1beta2.LessThanOrEqualToFinalShare, v1beta2.LessThanInitialShare})
		}},
		"certificates of someone else": {file: v2 + "internalCertManagement: {enable: false}\nwebhook: {certDir: /certs, port: 1}\n", check: func(c *v1alpha1.QueueConfiguration) bool {
			return !ptr.Deref(c.Webhook.ManageCertificate, true) && c.Webhook.CertDir == "/certs" && c.Webhook.Port == 1 && c.Metrics.CertDir == "/etc/kueue/metrics/certs"
		}},
		"gates": {file: v2 + "featureGates: {PartialAdmission: false}\n", check: func(c *v1alpha1.QueueConfiguration) bool {
			return !c.FeatureGates["PartialAdmission"] && len(c.FeatureGates) == 1
		}},
		"a typing error":    {file: v2 + "webhook: {prot: 1}\n", want: `unknown field "webhook.prot": did you mean "webhook.port"?`},
		"what we do not do": {file: v2 + "leaderElection: {resourceLock: configmaps}\n", want: "leaderElection.resourceLock: only leases elect a leader"},
		"access providers": {file: v2 + "multiKueue: {clusterProfile: {accessProviders: [{name: a, execConfig: {command: b}}]}}\n", check: func(c *v1alpha1.QueueConfiguration) bool {
			return len(c.MultiKueue.ClusterProfile.AccessProviders) == 1 && c.MultiKueue.ClusterProfile.AccessProviders[0].Name == "a"
		}},
		"other clusters": {file: v2 + "multiKueue: {origin: here}\n", check: func(c *v1alpha1.QueueConfiguration) bool {
			return c.MultiKueue.Origin == "here" && c.MultiKueue.WorkerLostTimeout.Duration == 15*time.Minute
		}},
		"what Kueue itself dropped": {file: v1 + "queueVisibility: {updateIntervalSeconds: 5}\n", want: "queueVisibility.updateIntervalSeconds: "},
		"its default is harmless":   {file: v2 + "multiKueue: {gcInterval: 1m}\nleaderElection: {resourceLock: leases, leaderElect: true, leaseDuration: 0s, renewDeadline: 0s, retryPeriod: 0s, resourceName: \"\", resourceNamespace: \"\"}\n"},
		"a negative time":           {file: v2 + "waitForPodsReady: {timeout: -1s}\n", want: "waitForPodsReady.timeout: -1s must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := load(t, tc.file)
			switch {
			case tc.want == "" && err != nil:
				t.Fatal(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			case tc.check != nil && !tc.check(cfg):
				t.Errorf("it was read as %+v", cfg)
			}
		})
	}
}

// What Kueue rejects of how devices count prevents the program from starting, in
// either version of the file.
func TestDeviceClassMappings(t *testing.T) {
	const mapping = `
resources:
  deviceClassMappings:
  - name: example.com/gpu
    deviceClassNames: [%s]
`
	for _, version := range []string{"v1beta1", "v1beta2"} {
		for classes, want := range map[string]string{
			"gpu.example.com": "",
			"":                "resources.deviceClassMappings[0].deviceClassNames: Required value: at least one device class name is required",
		} {
			cfg, err := load(t, "apiVersion: config.kueue.x-k8s.io/"+version+"\nkind: Configuration"+fmt.Sprintf(mapping, classes))
			if err != nil {
				t.Fatal(err)
			}
			options, err := queueOptions(cfg, features.Set{})
			if (err == nil) != (want == "") || err != nil && err.Error() != want {
				t.Errorf("%s: error %v, want %q", version, err, want)
			}
			if kinds := options.Devices; err == nil && len(kinds.Kinds()) != 3 {
				t.Errorf("%s: it is mapped, and %v are watched", version, kinds.Kinds())
			}
		}
	}
}

// What the reference shows of the file can be read, and is accepted.
func TestExamplesOfTheReference(t *testing.T) {
	data, err := os.ReadFile("../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	header := "apiVersion: " + v1alpha1.NewQueueConfiguration().APIVersion + "\nkind: QueueConfiguration\n"
	found := 0
	_, section, _ := strings.Cut(string(data), "\n## `elastic-queue`\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range strings.Split(section, "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		cfg, err := load(t, header+block)
		if err != nil {
			t.Errorf("%s\n%v", block, err)
			continue
		}
		gates, err := features.New(cfg.FeatureGates)
		if err != nil {
			t.Errorf("%s\n%v", block, err)
		}
		if _, err := queueOptions(cfg, gates); err != nil {
			t.Errorf("%s\n%v", block, err)
		}
		found++
	}
	if found < 3 {
		t.Errorf("only %d examples found: the reading is broken", found)
	}
}

// Gates of jobs are honoured both ways.
func TestJobGates(t *testing.T) {
	for gate, without := range map[features.Gate]func(jobs.Options) bool{
		features.AssignQueueLabelsForPods: func(o jobs.Options) bool { return o.NoQueueLabels },
		features.LWSImmutableGroupSize:    func(o jobs.Options) bool { return o.ResizableGroups },
		features.SkipReassignment:         func(o jobs.Options) bool { return o.RequeuePods },
		features.TASMultiLayerTopology:    func(o jobs.Options) bool { return o.NoSliceLayers },
		features.TopologyAwareScheduling:  func(o jobs.Options) bool { return o.NoTopology },
		features.AdmissionGatedBy:         func(o jobs.Options) bool { return o.NoGates },
		features.FinishOrphanedWorkloads:  func(o jobs.Options) bool { return o.LeaveOrphans },

		features.ValidateRayAndSparkJobUpdates: func(o jobs.Options) bool { return o.RayAndSparkMayLeave },
	} {
		for _, on := range []bool{true, false} {
			gates, err := features.New(map[string]bool{string(gate): on})
			if err != nil {
				t.Fatal(err)
			}
			if without(jobOptions(v1alpha1.NewQueueConfiguration(), gates)) == on {
				t.Errorf("%s=%t has no effect", gate, on)
			}
		}
		if without(jobOptions(v1alpha1.NewQueueConfiguration(), features.Set{})) {
			t.Errorf("%s is not on by default", gate)
		}
	}
}

// Pods that may be anywhere in a topology go where little capacity is free, or to
// few hosts, as the gate says.
func TestProfileGate(t *testing.T) {
	for on, want := range map[bool]int{true: 3, false: 2} {
		gates, err := features.New(map[string]bool{string(features.TASProfileMixed): on})
		if err != nil {
			t.Fatal(err)
		}
		options, err := queueOptions(v1alpha1.NewQueueConfiguration(), gates)
		if err != nil {
			t.Fatal(err)
		}
		for name, cores := range map[string]string{"one": "1", "two": "2", "three": "3"} {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
			n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cores)}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			options.Placer.Saw(n, false)
		}
		options.Placer.Saw(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, Spec: kueue.TopologySpec{
			Levels: []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}},
		}}, false)
		placed, refusal := options.Placer.Place(admission.PlaceRequest{PodSets: []admission.PlacePodSet{{
			Spec:  &admission.PodSet{Name: "main", Requests: admission.Requests{"cpu": 1000}, Topology: &admission.TopologyRequest{}},
			Count: 4, Flavors: []*admission.Flavor{{Topology: "hosts"}},
		}}})
		if nodes := placer.NodePlacements(placed); refusal != nil || len(nodes) != want {
			t.Errorf("with the gate %t the pods go to %+v (%v), want %d hosts", on, nodes, refusal, want)
		}
	}
}

func TestSparkGate(t *testing.T) {
	const spark = "sparkoperator.k8s.io/sparkapplication"
	for given, want := range map[string]bool{"": true, "SparkApplicationIntegration=true": true, "SparkApplicationIntegration=false": false} {
		cfg := v1alpha1.NewQueueConfiguration()
		if err := (features.Flag{Into: &cfg.FeatureGates}).Set(given); err != nil {
			t.Fatal(err)
		}
		gates, err := features.New(cfg.FeatureGates)
		if err != nil {
			t.Fatal(err)
		}
		kinds := jobOptions(cfg, gates).BuiltIn
		if got := len(kinds) == 0 || slices.Contains(kinds, spark); got != want {
			t.Errorf("with %q Spark is queued: %t", given, got)
		}
	}
}

// What metrics show of workloads is copied from their jobs.
func TestCustomLabelsAreCopied(t *testing.T) {
	cfg := v1alpha1.NewQueueConfiguration()
	cfg.QueueMetrics.CustomLabels = []v1beta2.ControllerMetricsCustomLabel{
		{Name: "team", SourceKind: ptr.To(v1beta2.SourceKindWorkload)}, {Name: "cost", SourceKind: ptr.To(v1beta2.SourceKindWorkload), SourceAnnotationKey: "example.com/cost"}, {Name: "other"},
	}
	for _, on := range []bool{false, true} {
		gates, err := features.New(map[string]bool{string(features.CustomMetricLabels): on})
		if err != nil {
			t.Fatal(err)
		}
		options := jobOptions(cfg, gates)
		if slices.Contains(options.CopyLabels, "team") != on || slices.Contains(options.CopyAnnotations, "example.com/cost") != on || slices.Contains(options.CopyLabels, "other") {
			t.Errorf("with the gate %t: labels %v, annotations %v", on, options.CopyLabels, options.CopyAnnotations)
		}
	}
}
