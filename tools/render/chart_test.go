package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// rendered is the chart with values, in a namespace.
func rendered(t *testing.T, namespace, values string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = writer
	defer func() { os.Stdout = stdout }()
	done := make(chan []byte)
	go func() {
		data, _ := io.ReadAll(reader)
		done <- data
	}()
	err = run("../../deploy/chart", namespace, file)
	_ = writer.Close()
	data := <-done
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestInstallFileIsTheChart(t *testing.T) {
	values, err := os.ReadFile("../../deploy/install/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../deploy/install/elastic.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := rendered(t, "elastic-queue", string(values)); !bytes.Equal([]byte(got), want) {
		t.Error("deploy/install/elastic.yaml is not what the chart renders to: run 'make generate'")
	}
}

// Each program can be left out, with everything that is only its own.
func TestSwitches(t *testing.T) {
	for name, test := range map[string]struct{ values, absent string }{
		"queue":         {"queue: {enabled: false}", `name: elastic-queue\n|elastic-queue-controller-manager|kind: APIService|strategy: Webhook`},
		"gpu scheduler": {"gpuScheduler: {enabled: false}", `elastic-gpu-scheduler`},
		"gpu agent":     {"gpuAgent: {enabled: false}", `elastic-gpu-agent`},
		"crds":          {"crds: {enabled: false}", `kind: CustomResourceDefinition`},
	} {
		text := rendered(t, "elastic-queue", test.values)
		if found := regexp.MustCompile(test.absent).FindString(text); found != "" {
			t.Errorf("without the %s there is still %q", name, found)
		}
		if len(text) < 1000 {
			t.Errorf("without the %s nothing is left", name)
		}
	}
}

// In a namespace of another name nothing points at the usual one.
func TestAnotherNamespace(t *testing.T) {
	text := rendered(t, "gpu-team", "namespace: {create: true}")
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "namespace: elastic-queue") || strings.Contains(line, ".elastic-queue.svc") || strings.HasSuffix(strings.TrimSpace(line), "- elastic-queue") {
			t.Errorf("it still says %q", line)
		}
	}
	if !strings.Contains(text, "kind: Namespace\nmetadata:\n  name: gpu-team") {
		t.Error("the namespace is not made")
	}
}

func TestValuesReachTheProgram(t *testing.T) {
	text := rendered(t, "elastic-queue", "queue: {replicas: 3, configuration: {writers: 4, webhook: {port: 9500}}}\nimage: {registry: r.example.com/e, tag: v9}")
	for _, want := range []string{"replicas: 3", "writers: 4", "port: 9500", "dnsNames:", "image: r.example.com/e/elastic-queue:v9"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not there", want)
		}
	}
}

// Cards by ResourceClaims are asked for, with all that they need.
func TestResourceClaims(t *testing.T) {
	parts := []string{"name: gpu.elasticgpu.io\n", "name: mig.elasticgpu.io\n", "name: elastic-gpu-agent-dra\n", "/plugins_registry\n", "cards: 0,1\n"}
	without := rendered(t, "gpu-team", "")
	with := rendered(t, "gpu-team", `gpuAgent: {dra: {enabled: true, cards: "0,1"}}`)
	for _, part := range parts {
		if strings.Contains(without, part) {
			t.Errorf("nobody asked for %q", part)
		}
		if !strings.Contains(with, part) {
			t.Errorf("%q is not there", part)
		}
	}
}

// Cards of other nodes are asked for, with all that they need.
func TestRemoteCards(t *testing.T) {
	parts := []string{"name: elastic-gpu-remote\n", "bindAddress: :9447\n", "serverNamespace: gpu-team\n", "remoteEngines:\n", "- /var/run/ko/elastic-gpu-remote\n", "name: POD_IP\n", "name: remote\n"}
	without := rendered(t, "gpu-team", "")
	with := rendered(t, "gpu-team", "gpuAgent: {remote: {enabled: true}}")
	for _, part := range parts {
		if strings.Contains(without, part) && part != "name: POD_IP\n" {
			t.Errorf("nobody asked for %q", part)
		}
		if !strings.Contains(with, part) {
			t.Errorf("%q is not there", part)
		}
	}
}

// As a plugin it is another program, with a scheduler's rights, that no kube-scheduler asks.
func TestSchedulerAsPlugin(t *testing.T) {
	text := rendered(t, "gpu-team", "gpuScheduler: {as: plugin}")
	for _, want := range []string{"/elastic-scheduler:", "name: elastic-scheduler-as-kube-scheduler", "name: system:volume-scheduler"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not there", want)
		}
	}
	for _, never := range []string{"39999", "/elastic-gpu-scheduler:", "namespace: elastic-queue"} {
		if strings.Contains(text, never) {
			t.Errorf("%q is still there", never)
		}
	}
}

// With cert-manager every object that must trust a webhook says whose CA it
// takes, the programs get its Secrets, and make none.
func TestCertManager(t *testing.T) {
	text := rendered(t, "gpu-team", "certManager: {enabled: true}")
	trusting, asking := 0, 0
	for _, object := range strings.Split(text, "\n---\n") {
		if !strings.Contains(object, "webhooks-of:") || strings.Contains(object, "kind: Service\n") {
			continue
		}
		trusting++
		if regexp.MustCompile(`inject-ca-from: gpu-team/elastic-(queue|gpu-scheduler)-webhooks`).MatchString(object) && strings.Count(object, "\n  annotations:") == 1 {
			asking++
		} else {
			t.Errorf("it has no CA from cert-manager: %.200s", object)
		}
	}
	if trusting != asking || trusting < 10 {
		t.Errorf("%d of %d objects take the CA of cert-manager", asking, trusting)
	}
	for want, times := range map[string]int{
		"kind: Certificate\n": 2, "selfSigned: {}": 2, "manageCertificate: false": 2, "mountPath: /etc/elastic-certificate": 2,
		"secretName: elastic-queue-webhooks": 2, "- elastic-queue-webhook-service.gpu-team.svc": 2,
	} {
		if got := strings.Count(text, want); got != times {
			t.Errorf("%q is there %d times, want %d", want, got, times)
		}
	}
	given := rendered(t, "gpu-team", "certManager: {enabled: true, issuerRef: {kind: ClusterIssuer, name: company}}")
	if strings.Contains(given, "selfSigned") || strings.Count(given, "name: company") != 2 {
		t.Error("an issuer that is given must be the one that is used")
	}
}

// The page is asked for, and so is the right to speak for others.
func TestPage(t *testing.T) {
	without := rendered(t, "gpu-team", "")
	alone := rendered(t, "gpu-team", "web: {enabled: true, hosts: [elastic.example.com]}")
	proxied := rendered(t, "gpu-team", "web: {enabled: true, history: true, proxy: {enabled: true, caSecretName: proxy-ca, allowedNames: [front]}}\ncertManager: {enabled: true}")
	for text, want := range map[string]struct{ there, never []string }{
		without: {never: []string{"elastic-web", "impersonate"}},
		alone: {
			there: []string{"image: ghcr.io/elastic-ai/elastic-web:", "- elastic-web.gpu-team.svc\n    - elastic.example.com", "kind: WebConfiguration"},
			never: []string{"impersonate", "elastic-web-history", "/etc/elastic-certificate", "namespace: elastic-queue", "clientCAFile"},
		},
		proxied: {there: []string{"impersonate", "name: elastic-web-history", "history: true", "secretName: elastic-web\n", "secretName: proxy-ca", "clientCAFile: /etc/elastic-proxy/ca.crt", "- front", "certDir: /etc/elastic-certificate"}},
	} {
		for _, part := range want.there {
			if !strings.Contains(text, part) {
				t.Errorf("%q is not there", part)
			}
		}
		for _, part := range want.never {
			if strings.Contains(text, part) {
				t.Errorf("nobody asked for %q", part)
			}
		}
	}
}

// Kubernetes gives a probe one second, which a program on a busy node may not have for an answer; it would be restarted.
func TestProbesWait(t *testing.T) {
	text := rendered(t, "elastic-queue", "gpuAgent: {enabled: true}\nweb: {enabled: true}\n")
	probes := regexp.MustCompile(`(?:readiness|liveness)Probe:\n +(?:httpGet|exec):\n`).FindAllString(text, -1)
	waiting := regexp.MustCompile(`(?:readiness|liveness)Probe:\n(?: +(?:httpGet|exec|path|port|command|initialDelaySeconds):.*\n)+ +timeoutSeconds: 5\n`).FindAllString(text, -1)
	if len(probes) < 10 || len(waiting) != len(probes) {
		t.Errorf("of %d probes %d wait five seconds", len(probes), len(waiting))
	}
}
