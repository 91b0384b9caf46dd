package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// TestPrometheus has Prometheus itself scrape elastic-queue, and the page show what it has of the past: cards used of a quota,
// jobs that run and wait, and an eviction, the first of its queue.
func TestPrometheus(t *testing.T) {
	program := os.Getenv("ELASTIC_PROMETHEUS")
	if program == "" {
		t.Skip("no Prometheus: 'make test-prometheus' builds one")
	}
	c := sandbox.For(t, sandbox.Options{Queue: func(cfg *v1alpha1.QueueConfiguration) { cfg.QueueMetrics.ClusterQueueResources = true }})
	cq := sandbox.ClusterQueue("team", "any", "4")
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	urgent := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 100}
	c.Make(t, sandbox.Flavor("any", nil), cq, urgent, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, sandbox.LocalQueue("ns", "main", "team"))
	submit := func(name, cards, class string) {
		job := sandbox.Job("ns", name, "main", 1, cards)
		job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
		if class != "" {
			job.Labels["kueue.x-k8s.io/priority-class"] = class
		}
		c.Make(t, job)
	}
	page := servePage(t, c, startPrometheus(t, program, metricsOf(t, c)))
	submit("runs", "3", "")
	page.eventually(t, "3 of 4 cards are used", func(q queuePast) bool { return q.last(q.Used) == 3 && q.last(q.Running) == 1 })
	submit("waits", "2", "")
	page.eventually(t, "3 of 4 cards are used, one runs and one waits", func(q queuePast) bool {
		return q.last(q.Used) == 3 && q.last(q.Nominal) == 4 && q.last(q.Running) == 1 && q.last(q.Waiting) == 1
	})
	submit("goes-first", "4", "urgent")
	page.eventually(t, "an eviction", func(q queuePast) bool {
		return most(q.Evicted) == 1 && q.last(q.Used) == 4 && q.last(q.Waiting) == 2
	})
}

// metricsOf elastic-queue are served at this address.
func metricsOf(t *testing.T, c *sandbox.Cluster) string {
	t.Helper()
	for _, p := range c.State.Programs {
		if p.Name == "elastic-queue" {
			return p.Metrics
		}
	}
	t.Fatal("elastic-queue does not run")
	return ""
}

// startPrometheus that scrapes a target every second, and return its URL.
func startPrometheus(t *testing.T, program, target string) string {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: elastic-queue\n  static_configs: [{targets: [%q]}]\n", target)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	run(t, exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn"))
	at := "http://" + address
	sandbox.Eventually(t, "Prometheus is ready", func(ctx context.Context) error {
		_, err := get(ctx, http.DefaultClient, at+"/-/ready")
		return err
	})
	return at
}

// run a program until the test ends.
func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func get(ctx context.Context, c *http.Client, at string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return body, err
}

// servedPage is "elastic web", as a browser has opened it.
type servedPage struct {
	base   string
	client *http.Client
}

// servePage starts it with a Prometheus.
func servePage(t *testing.T, c *sandbox.Cluster, prometheus string) *servedPage {
	t.Helper()
	cmd := exec.Command(filepath.Join(sandbox.Root(), "bin", "elastic"), "web", "--browser=false", "--port", "0", "--prometheus", prometheus)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	run(t, cmd)
	var link string
	for lines := bufio.NewScanner(out); link == "" && lines.Scan(); {
		link = regexp.MustCompile(`http://\S+`).FindString(lines.Text())
	}
	at, err := url.Parse(link)
	if err != nil || at.Host == "" {
		t.Fatalf("elastic web printed no link: %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &servedPage{base: "http://" + at.Host, client: &http.Client{Jar: jar}}
	if _, err := get(t.Context(), p.client, link); err != nil {
		t.Fatal(err)
	}
	var me struct{ Prometheus bool }
	if body, err := get(t.Context(), p.client, p.base+"/api/me"); err != nil || json.Unmarshal(body, &me) != nil || !me.Prometheus {
		t.Fatalf("the page does not know of Prometheus: %s, %v", body, err)
	}
	return p
}

// queuePast is what the page draws of a queue.
type queuePast struct{ Used, Nominal, Waiting, Running, Evicted []float64 }

// last value that is there: the newest point may lie ahead of the last scrape.
func (queuePast) last(line []float64) float64 {
	for i := len(line) - 1; i >= max(0, len(line)-3); i-- {
		if line[i] != 0 {
			return line[i]
		}
	}
	return 0
}

func most(line []float64) float64 {
	v := 0.0
	for _, value := range line {
		v = max(v, value)
	}
	return v
}

// eventually the last hour of the queue is so.
func (p *servedPage) eventually(t *testing.T, what string, is func(queuePast) bool) {
	t.Helper()
	sandbox.Eventually(t, what, func(ctx context.Context) error {
		body, err := get(ctx, p.client, p.base+"/api/history?queue=team&hours=1")
		if err != nil {
			return err
		}
		var past struct {
			Times  []int64
			Queues map[string]queuePast
		}
		if err := json.Unmarshal(body, &past); err != nil {
			return err
		}
		q, there := past.Queues["team"]
		if !there {
			return errors.New("the queue is not there")
		}
		if !is(q) {
			n := max(0, len(q.Used)-4)
			return fmt.Errorf("used %v, quota %v, running %v, waiting %v, evicted %v", q.Used[n:], q.Nominal[n:], q.Running[n:], q.Waiting[n:], most(q.Evicted))
		}
		return nil
	})
}
