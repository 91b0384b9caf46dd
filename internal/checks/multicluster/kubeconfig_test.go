package multicluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// A kubeconfig comes from whoever may write a Secret: it must not reach beyond
// the cluster it names.
func TestKubeconfigs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*clientcmdapi.Config)
		want   string
	}{
		"a token":                 {change: func(*clientcmdapi.Config) {}},
		"a name":                  {change: func(c *clientcmdapi.Config) { c.Clusters["a"].Server = "https://Api.Example.com" }},
		"anybody's certificate":   {func(c *clientcmdapi.Config) { c.Clusters["a"].InsecureSkipTLSVerify = true }, "insecure TLS verification is not allowed for cluster a"},
		"an authority in a file":  {func(c *clientcmdapi.Config) { c.Clusters["a"].CertificateAuthority = "/etc/ca" }, "certificate-authority file paths are not allowed, use certificate-authority-data for cluster a"},
		"no server":               {func(c *clientcmdapi.Config) { c.Clusters["a"].Server = "" }, "server URL is required for cluster a"},
		"a server that is none":   {func(c *clientcmdapi.Config) { c.Clusters["a"].Server = "https://under_score" }, "untrusted server endpoint"},
		"a token in a file":       {func(c *clientcmdapi.Config) { c.AuthInfos["u"].TokenFile = "/token" }, "tokenFile is not allowed"},
		"a certificate in a file": {func(c *clientcmdapi.Config) { c.AuthInfos["u"].ClientCertificate = "/cert" }, "client certificate file paths are not allowed"},
		"a password":              {func(c *clientcmdapi.Config) { c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Username: "me", Password: "p"} }, "basic auth is not allowed"},
		"a program to run":        {func(c *clientcmdapi.Config) { c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Exec: exec()} }, "exec plugins are not allowed"},
		"a way of authentication": {func(c *clientcmdapi.Config) {
			c.AuthInfos["u"] = &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc"}}
		}, "auth providers are not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			config := clientcmdapi.NewConfig()
			config.Clusters["a"] = &clientcmdapi.Cluster{Server: "https://10.0.0.1:6443"}
			config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "t"}
			config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{Cluster: "a", AuthInfo: "u"}, "c"
			test.change(config)
			text, err := clientcmd.Write(*config)
			if err != nil {
				t.Fatal(err)
			}
			_, err = parse(text)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if _, err := parse([]byte("{")); err == nil {
		t.Error("what is no kubeconfig was taken for one")
	}
}

func exec() *clientcmdapi.ExecConfig {
	return &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "sh", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
}

func TestPathsAreChecked(t *testing.T) {
	folder, outside := t.TempDir(), t.TempDir()
	for _, file := range []string{filepath.Join(folder, "in"), filepath.Join(outside, "out")} {
		if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "out"), filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(folder, "in"):                                "",
		filepath.Join(folder, "link"):                              "is not under",
		filepath.Join(outside, "out"):                              "is not under",
		filepath.Join(folder, "..", filepath.Base(outside), "out"): "is not under",
		"in":                            "path must be absolute",
		filepath.Join(folder, "absent"): "cannot resolve",
	} {
		_, err := sources{folder: folder}.fromFile(t.Context(), path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if _, err := (sources{}).fromFile(t.Context(), filepath.Join(outside, "out")); err != nil {
		t.Errorf("where paths are not checked: %v", err)
	}
}

func TestMissingSecret(t *testing.T) {
	cluster := &kueue.MultiKueueCluster{Spec: kueue.MultiKueueClusterSpec{ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: "east"}}}}
	all := sources{reader: fake.NewClientBuilder().Build(), namespace: "ours"}
	if _, _, reason, err := all.config(t.Context(), cluster); reason != "BadKubeConfig" || !apierrors.IsNotFound(err) || err.Error() != `Secret "east" not found` {
		t.Errorf("got %q, %v", reason, err)
	}
}

func TestStanding(t *testing.T) {
	for name, test := range map[string]struct {
		missing, inactive []string
		status            metav1.ConditionStatus
		reason, message   string
	}{
		"all work":   {status: metav1.ConditionTrue, reason: "Active", message: "The admission check is active"},
		"some do":    {missing: []string{"a"}, status: metav1.ConditionTrue, reason: "SomeActiveClusters", message: "Missing clusters: [a]"},
		"none does":  {missing: []string{"a"}, inactive: []string{"b"}, status: metav1.ConditionFalse, reason: "NoUsableClusters", message: "Missing clusters: [a], Inactive clusters: [b]"},
		"all do not": {inactive: []string{"a", "b"}, status: metav1.ConditionFalse, reason: "NoUsableClusters", message: "Inactive clusters: [a b]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := activeCondition(2, test.missing, test.inactive); got.Status != test.status || got.Reason != test.reason || got.Message != test.message {
				t.Errorf("got %+v", got)
			}
		})
	}
}
