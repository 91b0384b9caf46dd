// Command kueue runs Kueue's own integration suites against elastic-queue, as an outside process, and says which specs do
// not pass and why.
//
// Kueue's module comes from the registry. A copy of it is edited in a few places (edits.go), where it then calls packages
// record and outside.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kueue:", err)
		os.Exit(1)
	}
}

// run is what the flags say.
type run struct {
	root    string // of the project
	kueue   string // a copy of Kueue's module, edited
	into    string // where everything is put
	program string
	own     bool
	focus   string
	rest    bool
	procs   int
	tries   int
	limit   time.Duration
	page    string
}

func command(ctx context.Context) error {
	r := run{}
	suite := flag.String("suite", "singlecluster/webhook/core", `folders under Kueue's test/integration, with commas between them; "all" for every one that is known`)
	flag.StringVar(&r.root, "root", "../..", "the project")
	flag.StringVar(&r.into, "into", "../../bin/kueue-suites", "folder for what is built and reported")
	flag.StringVar(&r.program, "program", "", "elastic-queue; default: the project's bin/elastic-queue")
	flag.BoolVar(&r.own, "own", false, "run Kueue's own manager so, for comparison")
	flag.StringVar(&r.focus, "focus", "", "run only specs whose text this regular expression matches")
	flag.BoolVar(&r.rest, "rest", false, "run only specs that did not pass in earlier runs, which it counts together with this one")
	flag.IntVar(&r.procs, "processes", 2, "in how many processes a suite's specs are run at the same time")
	flag.IntVar(&r.tries, "attempts", 1, "how often a spec is run until it passes; those that pass late are named")
	flag.DurationVar(&r.limit, "limit", 40*time.Minute, "for each suite")
	flag.StringVar(&r.page, "write", "", "page to write counts and reasons into")
	flag.Parse()
	suites := strings.Split(*suite, ",")
	if *suite == "all" {
		suites = known
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	causes, err := readCauses("causes.txt")
	if err != nil {
		return err
	}
	failed := 0
	for _, name := range suites {
		now, all, err := r.suite(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		failed += now.print(causes)
		if r.page != "" {
			if err := all.write(r.page, r.tree(ctx), r.own, causes); err != nil {
				return err
			}
		}
	}
	if failed > 0 && !r.own {
		return fmt.Errorf("%d specs do not pass and causes.txt does not say why", failed)
	}
	return nil
}

// tree is the commit of the project, and says so if files in it are others.
func (r *run) tree(ctx context.Context) string {
	commit, err := exec.CommandContext(ctx, "git", "-C", r.root, "log", "-1", "--format=%h").Output()
	if err != nil {
		return "not known"
	}
	if changed, err := exec.CommandContext(ctx, "git", "-C", r.root, "status", "--porcelain", "--", "*.go", "*.yaml").Output(); err != nil || len(changed) > 0 {
		return strings.TrimSpace(string(commit)) + ", changed"
	}
	return strings.TrimSpace(string(commit))
}

// known are the suites that can be run so, in the order of the page.
var known = []string{
	"singlecluster/webhook/core", "singlecluster/webhook/jobs", "singlecluster/conversion", "singlecluster/scheduler",
	"singlecluster/scheduler/fairsharing", "singlecluster/scheduler/podsready", "singlecluster/scheduler/inadmissible",
	"singlecluster/scheduler/delayedadmission", "singlecluster/scheduler/excluderesources", "singlecluster/scheduler/quotacheckstrategy",
	"singlecluster/scheduler/resourcetransformations", "singlecluster/tas", "singlecluster/controller/core",
	"singlecluster/controller/dra", "singlecluster/controller/admissionchecks/provisioning", "singlecluster/importer",
	"singlecluster/controller/jobs/job", "singlecluster/controller/jobs/pod", "singlecluster/controller/jobs/jobset",
	"singlecluster/controller/jobs/mpijob", "singlecluster/controller/jobs/pytorchjob", "singlecluster/controller/jobs/tfjob",
	"singlecluster/controller/jobs/jaxjob", "singlecluster/controller/jobs/paddlejob", "singlecluster/controller/jobs/xgboostjob",
	"singlecluster/controller/jobs/rayjob", "singlecluster/controller/jobs/raycluster", "singlecluster/controller/jobs/trainjob",
	"singlecluster/controller/jobs/appwrapper", "singlecluster/controller/jobs/sparkapplication", "singlecluster/controller/jobs/statefulset",
	"singlecluster/controller/concurrentadmission", "singlecluster/controller/failurerecovery", "singlecluster/controller/jobframework/setup",
	"singlecluster/kueuectl",
	"multikueue", "multikueue/scheduler", "multikueue/tas",
}

// prepare makes what all suites need: Kueue's module, edited, a control plane, CRDs.
func (r *run) prepare(ctx context.Context) error {
	for _, path := range []*string{&r.root, &r.into} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	if r.page != "" {
		r.page = filepath.Join(r.root, r.page)
	}
	if err := r.copyKueue(ctx); err != nil {
		return err
	}
	if r.program == "" {
		r.program = filepath.Join(r.root, "bin", "elastic-queue")
	}
	if r.own {
		r.program = filepath.Join(r.into, "kueue")
		if err := r.sh(ctx, "go", "build", "-modfile", r.modfile(), "-o", r.program, "sigs.k8s.io/kueue/cmd/kueue"); err != nil {
			return err
		}
	}
	if _, err := os.Stat(r.program); err != nil {
		return fmt.Errorf("%w: build it first (make build)", err)
	}
	if err := r.sh(ctx, "go", "build", "-modfile", r.modfile(), "-o", r.ginkgo(), "github.com/onsi/ginkgo/v2/ginkgo"); err != nil {
		return err
	}
	assets := filepath.Join(r.into, "assets")
	if err := os.MkdirAll(assets, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"kube-apiserver", "etcd", "kubectl"} {
		path := filepath.Join(assets, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Symlink(filepath.Join(r.root, "bin", "elastic-sandbox"), path); err != nil {
			return err
		}
	}
	return r.manifests(ctx)
}

// modfile is this module's go.mod with the copy in Kueue's place.
func (r *run) modfile() string { return filepath.Join(r.into, "go.mod") }

func (r *run) copyKueue(ctx context.Context) error {
	r.kueue = filepath.Join(r.into, "module")
	from, err := moduleDir(ctx, "sigs.k8s.io/kueue")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(r.kueue); err != nil {
		return err
	}
	for _, part := range []string{"apis", "client-go", "cmd", "config", "hack", "pkg", "test", "go.mod", "go.sum"} {
		if err := copyTree(filepath.Join(from, part), filepath.Join(r.kueue, part)); err != nil {
			return err
		}
	}
	if err := apply(r.kueue); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := copyFile(name, filepath.Join(r.into, name)); err != nil {
			return err
		}
	}
	return r.sh(ctx, "go", "mod", "edit", "-replace=sigs.k8s.io/kueue="+r.kueue, r.modfile())
}

// operators are modules whose CRDs the suites install, and the folder each is looked for in.
var operators = []struct{ module, files, folder string }{
	{"github.com/kubeflow/mpi-operator", "manifests/base/*.yaml", "mpi-operator"},
	{"github.com/kubeflow/training-operator", "manifests/base/crds/*.yaml", "training-operator-crds"},
	{"github.com/kubeflow/trainer/v2", "manifests/base/crds/*.yaml", "kf-trainer-crds"},
	{"github.com/kubeflow/trainer/v2", "manifests/base/runtimes/*_distributed.yaml", "kf-trainer-runtimes"},
	{"github.com/ray-project/kuberay/ray-operator", "config/crd/bases/*.yaml", "ray-operator-crds"},
	{"sigs.k8s.io/jobset", "config/components/crd/bases/*.yaml", "jobset-operator"},
	{"k8s.io/autoscaler/cluster-autoscaler/apis", "config/crd/*.yaml", "cluster-autoscaler"},
	{"github.com/project-codeflare/appwrapper", "config/crd/bases/*.yaml", "appwrapper-crds"},
	{"sigs.k8s.io/lws", "config/crd/bases/*.yaml", "leaderworkerset-operator"},
	{"sigs.k8s.io/cluster-inventory-api", "config/crd/bases/*.yaml", "clusterprofile"},
	{"github.com/kubeflow/spark-operator/v2", "config/crd/bases/*.yaml", "spark-operator-crds"},
}

// manifests puts CRDs where the suites look for them, as Kueue's own make does.
func (r *run) manifests(ctx context.Context) error {
	crds := filepath.Join(r.kueue, "config", "components", "crd")
	built, err := exec.CommandContext(ctx, filepath.Join(r.into, "assets", "kubectl"), "kustomize", crds).Output()
	if err != nil {
		return fmt.Errorf("building Kueue's CRDs: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(crds, "_output"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(crds, "_output", "crds-with-webhooks.yaml"), built, 0o600); err != nil {
		return err
	}
	for _, o := range operators {
		dir, err := moduleDir(ctx, o.module)
		if err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(o.files)))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("%s has no %s: %w", o.module, o.files, err)
		}
		for _, file := range files {
			if filepath.Base(file) == "kustomization.yaml" || o.folder == "training-operator-crds" && strings.Contains(file, "mpijobs") {
				continue
			}
			if err := copyFile(file, filepath.Join(r.kueue, "dep-crds", o.folder, filepath.Base(file))); err != nil {
				return err
			}
		}
	}
	return nil
}

// frameworks are the kinds of jobs that a suite's own process has, whatever it enables.
func frameworks(suite string) string {
	const jobs = "batch/job pod jobset.x-k8s.io/jobset kubeflow.org/mpijob kubeflow.org/paddlejob kubeflow.org/pytorchjob " +
		"kubeflow.org/tfjob kubeflow.org/xgboostjob kubeflow.org/jaxjob ray.io/rayjob ray.io/raycluster ray.io/rayservice " +
		"trainer.kubeflow.org/trainjob workload.codeflare.dev/appwrapper"
	switch {
	case strings.HasSuffix(suite, "/webhook/jobs"):
		return jobs + " deployment statefulset leaderworkerset.x-k8s.io/leaderworkerset sparkoperator.k8s.io/sparkapplication"
	case strings.HasSuffix(suite, "/tas"), strings.HasSuffix(suite, "/importer"):
		return "batch/job pod"
	case strings.HasPrefix(suite, "multikueue"):
		return jobs
	case strings.Contains(suite, "/controller/jobs/"): // whose last part names its kind
		for _, kind := range strings.Fields(jobs + " sparkoperator.k8s.io/sparkapplication") {
			if path.Base(kind) == path.Base(suite) && strings.Contains(kind, ".") {
				return kind + " batch/job" // of which some have children
			}
		}
	}
	return ""
}

// suite builds and runs one, and returns what came of this run, and of this and earlier ones together.
func (r *run) suite(ctx context.Context, name string) (now, all *result, err error) {
	short := strings.ReplaceAll(strings.TrimPrefix(name, "singlecluster/"), "/", "-")
	if r.own {
		short += ".kueue"
	}
	files := filepath.Join(r.into, short)
	dir := filepath.Join(r.kueue, "test", "integration", filepath.FromSlash(name))
	binary := filepath.Join(dir, "suite.test") // a suite is run in its folder
	fmt.Fprintf(os.Stderr, "building %s\n", name)
	if err := r.sh(ctx, "go", "test", "-c", "-modfile", r.modfile(), "-o", binary, "sigs.k8s.io/kueue/test/integration/"+name); err != nil {
		return nil, nil, err
	}
	if path.Base(name) == "kueuectl" {
		if err := r.sh(ctx, "go", "build", "-modfile", r.modfile(), "-o", filepath.Join(r.commands(), "kubectl-kueue"), "sigs.k8s.io/kueue/cmd/kueuectl"); err != nil {
			return nil, nil, err
		}
	}
	var before []outcome
	if r.rest || r.focus != "" {
		if before, err = earlier(files + ".specs.json"); err != nil {
			return nil, nil, err
		}
	}
	specs, setUp, cut, err := r.specs(ctx, name, binary, files, before)
	if err != nil {
		return nil, nil, err
	}
	merged := together(before, specs)
	if err := writeOutcomes(files+".specs.json", merged); err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(specs, outcome.ended) && len(setUp) == 0 && !r.rest {
		return nil, nil, errors.New("no spec was run")
	}
	return sum(name, slices.Concat(specs, setUp, cut)), sum(name, slices.Concat(merged, setUp)), nil
}

// specs runs those of a suite.
func (r *run) specs(ctx context.Context, name, binary, files string, before []outcome) (specs, setUp, cut []outcome, err error) {
	report := files + ".json"
	for _, old := range []string{report, files + ".program.log"} {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, nil, nil, err
		}
	}
	log, err := os.Create(files + ".log")
	if err != nil {
		return nil, nil, nil, err
	}
	defer log.Close()
	fmt.Fprintf(os.Stderr, "running %s (%s at most); its log is %s\n", name, r.limit, log.Name())
	args := []string{"--json-report=" + report, "--no-color", "--timeout=" + r.limit.String(), fmt.Sprintf("--procs=%d", r.procs), fmt.Sprintf("--flake-attempts=%d", r.tries), "--focus=" + r.focus}
	if these := done(before); r.rest && these != "" {
		args = append(args, "--skip="+these)
	}
	limited, cancel := context.WithTimeout(ctx, r.limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(limited, r.ginkgo(), append(args, binary)...)
	// An interrupted suite cleans up. What it started is in its group, and ends with it in any case.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(),
		"KUBEBUILDER_ASSETS="+filepath.Join(r.into, "assets"), "PROJECT_DIR="+r.kueue+"/", "ARTIFACTS="+files+".artifacts", "ENVTEST_K8S_VERSION=1.36", "KUEUE_BIN="+r.commands(),
		"OUTSIDE_PROGRAM="+r.program, "OUTSIDE_LOG="+files+".program.log", "OUTSIDE_FRAMEWORKS="+frameworks(name))
	if r.own {
		cmd.Env = append(cmd.Env, "OUTSIDE_KUEUE=1")
	}
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if _, missing := os.Stat(report); missing != nil {
		return nil, nil, nil, fmt.Errorf("it reports nothing, and ended so: %w; see %s", err, log.Name())
	}
	return readReport(report)
}

// commands is the folder with Kueue's own, which a suite types.
func (r *run) commands() string { return filepath.Join(r.into, "commands") }

// ginkgo is the program that runs a suite in several processes.
func (r *run) ginkgo() string { return filepath.Join(r.into, "ginkgo") }

// sh runs a command and shows what it says if it fails.
func (r *run) sh(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func moduleDir(ctx context.Context, path string) (string, error) {
	if out, err := exec.CommandContext(ctx, "go", "mod", "download", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("module %s: %w: %s", path, err, out)
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		return "", fmt.Errorf("module %s: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// copyTree copies files; those of modules cannot be written to.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(to, name))
	})
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
