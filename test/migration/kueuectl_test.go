package migration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// typed are commands of kueuectl, and what each says, as far as it tells that the queue is done with what came before: a
// command that only asks is typed again until it says that. SUBMIT is no command: it makes a job of four cards.
var typed = []struct{ command, says string }{
	{"create resourceflavor cards --node-labels elasticgpu.io/gpu-model=H100-80G", `cards created`},
	{"create clusterqueue team --cohort all --nominal-quota cards:nvidia.com/gpu=4", `team created`},
	{"create localqueue main --clusterqueue team", `main created`},
	{"create localqueue main --clusterqueue team", `already exists`},
	{"create localqueue nobodys --clusterqueue missing", `not found`},
	{"create localqueue nobodys --clusterqueue missing --ignore-unknown-cq", `nobodys created`},
	{"create clusterqueue none --nominal-quota missing", `exit status`},
	{"create clusterqueue none --nominal-quota cards:nvidia.com/gpu=-1", `exit status`},
	{"list resourceflavor", `cards +elasticgpu.io/gpu-model=H100-80G`},
	{"list clusterqueue", `team +all +0 +0 +true`},
	{"list localqueue --clusterqueue team", `main +team +0 +0`},
	{"SUBMIT first", ""},
	{"list workload --status admitted", `job-first-xxxxx .* ADMITTED`},
	{"SUBMIT second", ""},
	{"list workload --status pending", `job-second-xxxxx .* PENDING`},
	{"list clusterqueue", `team +all +1 +1 +true`},
	{"list localqueue", `main +team +1 +1 `},
	{"list workload", `second`},
	{"list workload --localqueue main --status admitted", `job-first-xxxxx`},
	{"list workload --clusterqueue team --status finished", `No resources found`},
	{"list workload --for job/second", `job-second-xxxxx`},
	{"list pods --for job/first", `first-xxxxx .*Running`},
	{"get clusterqueue team -o jsonpath={.spec.resourceGroups[0].flavors[0].resources[0].nominalQuota}", `^4$`},
	{"describe localqueue main", `Cluster Queue: +team`},
	{"patch clusterqueue team --type merge -p {\"spec\":{\"queueingStrategy\":\"StrictFIFO\"}}", `team patched`},
	{"get clusterqueue team -o jsonpath={.spec.queueingStrategy}", `StrictFIFO`},
	{"stop workload WORKLOAD first", `stopped`},
	{"list workload --status admitted", `\ANAME.*\njob-second-xxxxx.*\n\z`},
	{"get workload WORKLOAD first -o jsonpath={.spec.active}", `^false$`},
	{"resume workload WORKLOAD first", `resumed`},
	{"list clusterqueue", `team +all +1 +1 +true`},
	{"list workload --status pending", `job-first-xxxxx`},
	{"stop localqueue main --keep-already-running", `localqueue.*/main$`},
	{"get localqueue main -o jsonpath={.spec.stopPolicy}", `^Hold$`},
	{"resume localqueue main", `localqueue.*/main$`},
	{"stop clusterqueue team", `clusterqueue.*/team$`},
	{"list clusterqueue --active false", `team +all +2 +0 +false`},
	{"resume clusterqueue team", `clusterqueue.*/team$`},
	{"list clusterqueue --active true", `team +all +1 +1 +true`},
	{"stop clusterqueue missing", `not found`},
	{"resume workload missing", `not found`},
	{"delete localqueue nobodys", `deleted`},
	{"list localqueue", `\ANAME.*\nmain.*\n\z`},
}

// kueuectl, Kueue's own command line, gets from Elastic what it gets from Kueue.
func TestKueuectl(t *testing.T) {
	if os.Getenv(folderVariable) == "" {
		t.Fatal("it needs Kueue's programs: run 'make test-migration'")
	}
	putKubectlOnPath(t)
	kubeconfig, stop, err := sandbox.Bare(t.TempDir(), nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	c, err := sandbox.Connect(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	manager := installKueue(t, c, kubeconfig)
	forgetPositions(t, c)
	kueues := session(t, c, kubeconfig, nil)
	manager.stop()

	cluster := sandbox.For(t, sandbox.Options{Nodes: nodes})
	session(t, cluster, cluster.Kubeconfig, kueues)
}

// forgetPositions removes Kueue's part of the API that says where in its queue a workload is: its manager does not serve it
// here, and kueuectl goes without it only where it is not announced.
func forgetPositions(t *testing.T, c client.Client) {
	t.Helper()
	for _, version := range []string{"v1beta1", "v1beta2"} {
		service := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}}
		service.SetName(version + ".visibility.kueue.x-k8s.io")
		if err := c.Delete(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
}

// putKubectlOnPath has the sandbox's kubectl found, to which kueuectl passes on what it does not do itself.
func putKubectlOnPath(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(sandbox.Root(), "bin", "elastic-sandbox"), filepath.Join(dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// session types the commands and returns what each said. Where wanted is given, each must say just that.
func session(t *testing.T, c client.Client, kubeconfig string, wanted []string) (said []string) {
	t.Helper()
	for i, line := range typed {
		answer := ""
		ask := func(ctx context.Context) (err error) {
			if answer, err = kueuectl(ctx, c, kubeconfig, line.command); err != nil {
				return err
			}
			if !regexp.MustCompile("(?m)" + line.says).MatchString(answer) {
				return fmt.Errorf("it says\n%s", answer)
			}
			if wanted != nil && answer != wanted[i] {
				return fmt.Errorf("it says\n%s\nand of Kueue it says\n%s", answer, wanted[i])
			}
			return nil
		}
		verb, name, _ := strings.Cut(line.command, " ")
		switch {
		case verb == "SUBMIT":
			create(t, c, job(name, 4))
		case verb == "list", verb == "get", verb == "describe", i == 0: // the first one waits for webhooks that are just starting
			sandbox.Eventually(t, "kueuectl "+line.command, ask)
		default:
			if err := ask(t.Context()); err != nil {
				t.Fatalf("kueuectl %s: %v", line.command, err)
			}
		}
		said = append(said, answer)
	}
	return said
}

// other than these an answer is the same for both: names made of UIDs and at random, and times.
var other = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b(job-)?(first|second)-\w{5}\b`), "$1$2-xxxxx"},
	{regexp.MustCompile(`(?m)^( +(?:UID|Resource Version|Creation Timestamp|Last Transition Time|Generation|Observed Generation):).*$`), "$1 <any>"},
	{regexp.MustCompile(`\b\d+[smh](\d+s)?\b`), "<time>"},
	{regexp.MustCompile(` {2,}`), "  "},
	{regexp.MustCompile(`(?m)[ \t]+$`), ""},
	// Elastic knows positions, see forgetPositions.
	{regexp.MustCompile(`PENDING  \d+  `), "PENDING  "},
}

// kueuectl types one command. That it refuses is an answer, too.
func kueuectl(ctx context.Context, c client.Client, kubeconfig, command string) (string, error) {
	args := strings.Fields(command)
	for i, arg := range args {
		if arg == "WORKLOAD" {
			wl, err := workloadOf(ctx, c, args[i+1])
			if err != nil {
				return "", err
			}
			args = append(append(args[:i:i], wl.Name), args[i+2:]...)
			break
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv(folderVariable), "kueuectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	data, err := cmd.CombinedOutput()
	out := string(data)
	if err != nil {
		out += "(" + err.Error() + ")\n"
	}
	for _, o := range other {
		out = o.pattern.ReplaceAllString(out, o.instead)
	}
	return out, nil
}
