// Package local tests the local cluster as a person uses it: the built
// commands, several clusters at once, and what is left when things are killed.
package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// nodes of these clusters: few.
const nodes = "1x4:T4-16G"

func TestSeveralClustersAndKill(t *testing.T) {
	home(t)
	up := func(name string) string {
		return elastic(t, "up", "--detach", "--sample=false", "--name", name, "--nodes", nodes)
	}
	t.Cleanup(func() { elastic(t, "down", "--all") })
	up("a")
	up("b")
	a, b := stateOf(t, "a"), stateOf(t, "b")
	if a.Server == b.Server {
		t.Fatalf("two clusters on one address: %s", a.Server)
	}
	if again := up("a"); !strings.Contains(again, fmt.Sprintf("already running (process %d", a.PID)) {
		t.Errorf("a second up must say that it runs already:\n%s", again)
	}
	elastic(t, "kubectl", "--name", "a", "create", "namespace", "kept")

	// A kill that no process can handle ends everything below it, and nothing else.
	kill(t, a.PID)
	for _, pid := range a.pids() {
		waitGone(t, pid)
	}
	if out := elastic(t, "kubectl", "--name", "b", "get", "nodes", "-o", "name"); !strings.Contains(out, "node/t4-16g-0") {
		t.Errorf("the other cluster must not notice: %s", out)
	}

	// The next up starts as if nothing had happened, with what was there.
	up("a")
	if out := elastic(t, "kubectl", "--name", "a", "get", "namespace", "kept", "-o", "name"); !strings.Contains(out, "kept") {
		t.Errorf("objects must survive a kill: %s", out)
	}
	if status := elastic(t, "status"); !strings.Contains(status, "elastic-queue") || !strings.Contains(status, "ready") {
		t.Errorf("status must show both clusters and their programs:\n%s", status)
	}

	elastic(t, "down", "--name", "b")
	waitGone(t, b.PID)
	if _, err := elasticErr("kubectl", "--name", "b", "get", "nodes"); err == nil || !strings.Contains(err.Error(), "not running") {
		t.Errorf("after down, kubectl must say the cluster is not running: %v", err)
	}
}

func TestProgramThatDiesIsStartedAgain(t *testing.T) {
	home(t)
	t.Cleanup(func() { elastic(t, "down", "--all") })
	elastic(t, "up", "--detach", "--sample=false", "--nodes", nodes)
	before := stateOf(t, "elastic")
	kill(t, before.Programs[0].PID)
	sandbox.Eventually(t, "the program runs again", func(context.Context) error {
		now := stateOf(t, "elastic").Programs[0].PID
		if now == before.Programs[0].PID {
			return fmt.Errorf("still process %d", now)
		}
		return nil
	})
}

// The control plane is killed in the middle: it comes back where it was, with what it had, and the queue goes on.
func TestControlPlaneThatDiesIsStartedAgain(t *testing.T) {
	home(t)
	t.Cleanup(func() { elastic(t, "down", "--all") })
	elastic(t, "up", "--detach", "--nodes", nodes)
	elastic(t, "submit", "job", "--name", "before", "--queue", "main", "--gpus", "1", "--image", "busybox", "sleep 1")
	before := stateOf(t, "elastic")
	kill(t, before.SandboxPID)
	waitGone(t, before.SandboxPID)
	sandbox.Eventually(t, "the control plane runs again", func(context.Context) error {
		if now := stateOf(t, "elastic"); now.SandboxPID == before.SandboxPID || now.Server != before.Server {
			return fmt.Errorf("process %d at %s", now.SandboxPID, now.Server)
		}
		return nil
	})
	elastic(t, "submit", "job", "--name", "after", "--queue", "main", "--gpus", "1", "--image", "busybox", "sleep 1")
	for _, job := range []string{"before", "after"} {
		elastic(t, "wait", job, "--timeout", "5m")
	}
	if now := stateOf(t, "elastic"); now.PID != before.PID || now.Phase != "ready" {
		t.Errorf("%+v, before %+v", now, before)
	}
}

func TestInterruptEndsEverything(t *testing.T) {
	home(t)
	cmd := command("up", "--sample=false", "--nodes", nodes)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "the cluster is ready", func(context.Context) error {
		if s := stateOf(t, "elastic"); s.Phase != "ready" {
			return fmt.Errorf("phase %q", s.Phase)
		}
		return nil
	})
	s := stateOf(t, "elastic")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("after Ctrl-C: %v\n%s", err, out.String())
	}
	for _, pid := range s.pids() {
		waitGone(t, pid)
	}
}

func shell(dir, script string) (string, error) {
	cmd := exec.Command("bash", "-e", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The README's first job, word for word, after "make up".
func TestReadmeFirstJob(t *testing.T) {
	home(t)
	readme, err := os.ReadFile(filepath.Join(root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "## Your first job")
	if !ok {
		t.Fatal("the README has no first job")
	}
	_, rest, _ = strings.Cut(rest, "```sh\n")
	script, _, _ := strings.Cut(rest, "```")
	t.Cleanup(func() { elastic(t, "down", "--all") })
	out := elastic(t, "up", "--detach")
	for _, want := range []string{"A first job", "finished", "What to type next"} {
		if !strings.Contains(out, want) {
			t.Errorf("up must say %q:\n%s", want, out)
		}
	}
	opensThePage(t, out)
	typed := ""
	_, next, _ := strings.Cut(out, "What to type next:\n")
	for line := range strings.Lines(next) {
		if !strings.Contains(line, " down") { // the cluster is still needed
			typed += line
		}
	}
	got, err := shell(root(), script)
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	if !strings.Contains(got, "condition met") {
		t.Errorf("the job must finish:\n%s", got)
	}
	if got, err := shell(".", typed); err != nil {
		t.Errorf("what to type next: %v\n%s", err, got)
	}
}

// opensThePage by the link that up printed: it is there, and nobody has it without the key.
func opensThePage(t *testing.T, out string) {
	t.Helper()
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/open\?key=\S+`).FindString(out)
	at, err := url.Parse(link)
	if err != nil || link == "" {
		t.Fatalf("up prints no link to the page (%v):\n%s", err, out)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	get := func(c *http.Client, path string) (int, string) {
		t.Helper()
		response, err := c.Get("http://" + at.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	person := &http.Client{Jar: jar}
	if code, body := get(person, at.RequestURI()); code != http.StatusOK {
		t.Errorf("the link: %d %s", code, body)
	}
	if code, body := get(person, "/"); code != http.StatusOK || !strings.Contains(body, "<script") {
		t.Errorf("the page: %d %s", code, body)
	}
	if code, body := get(person, "/api/me"); code != http.StatusOK || !strings.Contains(body, `"user"`) {
		t.Errorf("who looks: %d %s", code, body)
	}
	if code, body := get(&http.Client{}, "/api/me"); code == http.StatusOK {
		t.Errorf("without the key: %d %s", code, body)
	}
}

// state is what a cluster says of itself.
type state struct {
	PID, SandboxPID int
	Phase           string
	Server          string
	Programs        []struct{ PID int }
}

func (s state) pids() []int {
	pids := []int{s.PID}
	for _, p := range s.Programs {
		pids = append(pids, p.PID)
	}
	return pids
}

func stateOf(t *testing.T, name string) state {
	t.Helper()
	var rows []struct {
		Name  string
		State *state
	}
	if err := json.Unmarshal([]byte(elastic(t, "status", "-o", "json")), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.Name == name && row.State != nil {
			return *row.State
		}
	}
	return state{}
}

// home gives the test a place of its own for its clusters.
func home(t *testing.T) {
	t.Helper()
	t.Setenv("ELASTIC_HOME", t.TempDir())
	t.Setenv("ELASTIC_NAME", "")
}

func root() string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		panic(err)
	}
	return dir
}

func command(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(root(), "bin", "elastic"), args...)
}

func elasticErr(args ...string) (string, error) {
	out, err := command(args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("elastic %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func elastic(t *testing.T, args ...string) string {
	t.Helper()
	out, err := elasticErr(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func waitGone(t *testing.T, pid int) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("process %d ends", pid), func(context.Context) error {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) || isZombie(pid) {
			return nil
		}
		return errors.New("it runs")
	})
}

// isZombie says the process has ended but no parent has asked how: where no init
// collects orphans they stay so.
func isZombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(data, []byte(") Z "))
}
