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
