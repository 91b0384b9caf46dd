package multicluster

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

const profileText = `
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ClusterProfile
metadata: {name: east, namespace: ours}
spec: {clusterManager: {name: inventory}}
status:
  credentialProviders:
  - {name: old, cluster: {server: "https://old.example.com"}}
  accessProviders:
  - name: cloud
    cluster:
      server: https://east.example.com
      certificate-authority-data: Y2E=
      certificate-authority: /etc/passwd
      insecure-skip-tls-verify: true
      proxy-url: http://proxy.example.com:3128
      extensions:
      - {name: client.authentication.k8s.io/exec, extension: {region: east}}
      - {name: clusterprofiles.multicluster.x-k8s.io/exec/additional-args, extension: [--evil]}
`

// A profile comes from an inventory: it says where a cluster is, and neither what is run here nor whether its server is
// verified.
func TestClusterProfiles(t *testing.T) {
	provider := func(names ...string) (all []kueueconfig.ClusterProfileAccessProvider) {
		for _, name := range names {
			all = append(all, kueueconfig.ClusterProfileAccessProvider{Name: name, ExecConfig: clientcmdapi.ExecConfig{Command: "get-" + name, Args: []string{"token"}}})
		}
		return all
	}
	for name, test := range map[string]struct {
		of        string
		change    [2]string
		providers []kueueconfig.ClusterProfileAccessProvider
		reason    string
		err, host string
	}{
		"missing":            {of: "west", providers: provider("cloud"), reason: "BadClusterProfile", err: `"west" not found`},
		"no provider":        {of: "east", reason: "BadClusterProfile", err: "no access provider configured"},
		"another provider":   {of: "east", providers: provider("other"), reason: "BadClusterProfile", err: `no matching cluster accessor found for cluster profile "east"`},
		"ours":               {of: "east", providers: provider("other", "cloud"), host: "https://east.example.com"},
		"by an older name":   {of: "east", providers: provider("old", "cloud"), host: "https://old.example.com"},
		"in another place":   {of: "east", change: [2]string{"namespace: ours", "namespace: theirs"}, providers: provider("cloud"), reason: "BadClusterProfile", err: "not found"},
		"no server at all":   {of: "east", change: [2]string{"https://east.example.com", `"https://under_score"`}, providers: provider("cloud"), reason: "BadRestConfig", err: "untrusted server endpoint"},
		"a proxy of nothing": {of: "east", change: [2]string{"http://proxy.example.com:3128", `"::"`}, providers: provider("cloud"), reason: "BadClusterProfile", err: "missing protocol scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			profile := &unstructured.Unstructured{}
			text := profileText
			if test.change[0] != "" {
				text = strings.Replace(text, test.change[0], test.change[1], 1)
			}
			if err := yaml.Unmarshal([]byte(text), &profile.Object); err != nil {
				t.Fatal(err)
			}
			reader := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(profile).Build()
			all := sources{profiles: &profiles{reader: reader, namespace: "ours", providers: test.providers}}
			config, made, reason, err := all.config(t.Context(), reachedByProfile(test.of))
			if test.err != "" {
				if err == nil || reason != test.reason || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %q, %v; want %q, %q", reason, err, test.reason, test.err)
				}
				return
			}
			if err != nil || config.Host != test.host || len(made) == 0 {
				t.Fatalf("got %+v, %v", config, err)
			}
			if exec := config.ExecProvider; !strings.HasPrefix(exec.Command, "get-") || len(exec.Args) != 1 || exec.InteractiveMode != clientcmdapi.NeverExecInteractiveMode {
				t.Errorf("credentials come from %+v", exec)
			}
			if config.Insecure || config.CAFile != "" {
				t.Errorf("a profile has its server trusted: %+v", config.TLSClientConfig)
			}
			if name == "ours" {
				about, ok := config.ExecProvider.Config.(*runtime.Unknown)
				if string(config.CAData) != "ca" || config.Proxy == nil || !ok || !strings.Contains(string(about.Raw), "east") {
					t.Errorf("got %+v", config)
				}
			}
		})
	}
	for of, all := range map[string]sources{"MultiKueueClusterProfileFeatureDisabled": {}, "BadClusterProfile": {profiles: &profiles{}}} {
		if _, _, reason, err := all.config(t.Context(), reachedByProfile("east")); reason != of || err == nil {
			t.Errorf("got %q, %v; want %q", reason, err, of)
		}
	}
}

func reachedByProfile(name string) *kueue.MultiKueueCluster {
	return &kueue.MultiKueueCluster{Spec: kueue.MultiKueueClusterSpec{ClusterSource: kueue.ClusterSource{ClusterProfileRef: &kueue.ClusterProfileReference{Name: name}}}}
}

func TestAccessProvidersAreComplete(t *testing.T) {
	whole := kueueconfig.ClusterProfileAccessProvider{Name: "cloud", ExecConfig: clientcmdapi.ExecConfig{
		Command: "get", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	if err := validateProviders([]kueueconfig.ClusterProfileAccessProvider{whole}); err != nil {
		t.Error(err)
	}
	err := validateProviders([]kueueconfig.ClusterProfileAccessProvider{whole, {}})
	for _, field := range []string{"name", "execConfig.command", "execConfig.apiVersion", "execConfig.interactiveMode"} {
		if err == nil || !strings.Contains(err.Error(), "accessProviders[1]."+field+":") {
			t.Errorf("an empty %s is not refused: %v", field, err)
		}
	}
}
