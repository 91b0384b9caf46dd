package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const module = "github.com/elastic-ai/elastic/test/kueue"

// edit is a change to a file of Kueue's: text that is put behind, or in the place of, other text, which must be there once.
type edit struct {
	file    string
	after   string
	insert  string
	instead bool // of the text, not behind it
}

// edits make the suites run an outside process. The calls note what a set-up asks for, which suites say in Go.
var edits = []edit{
	// The process instead of the manager, once that is set up.
	{file: "test/integration/framework/framework.go", after: "\t\tmanagerSetup(managerCtx, mgr)\n", insert: "\t\tasked := record.During(func() { managerSetup(managerCtx, mgr) })\n", instead: true},
	{file: "test/integration/framework/framework.go", after: "err := mgr.Start(managerCtx)", insert: "err := outside.Run(managerCtx, cfg, webhookInstallOptions, asked)", instead: true},
	{file: "test/integration/framework/framework.go", after: "}, util.Timeout, util.Interval).Should(gomega.Succeed())\n\t})\n}\n\nfunc (f *Framework) StopManager",
		insert: "}, 4*util.Timeout, util.Interval).Should(gomega.Succeed())\n\t})\n}\n\nfunc (f *Framework) StopManager", instead: true},
	// Specs that change gates.
	{file: "pkg/features/kube_features.go", after: "func SetFeatureGateDuringTest(tb testing.TB, f featuregate.Feature, value bool) {\n",
		insert: "\ttb.Cleanup(record.GatesChanged)\n\tdefer record.GatesChanged()\n"},
	{file: "pkg/features/kube_features.go", after: "featureGates map[featuregate.Feature]bool) {\n",
		insert: "\ttb.Cleanup(record.GatesChanged)\n\tdefer record.GatesChanged()\n"},
	// What the set-up asks for.
	{file: "pkg/controller/core/core.go", after: "opts SetupControllersOpts) (string, error) {\n", insert: "\trecord.Note(\"configuration\", cfg)\n"},
	{file: "pkg/scheduler/scheduler.go", after: "recorder events.EventRecorder, opts ...Option) *Scheduler {\n", insert: "\trecord.Note(\"scheduler\", true)\n"},
	{file: "pkg/scheduler/scheduler.go", after: "func (s *Scheduler) Start(ctx context.Context) error {\n",
		insert: "\tif os.Getenv(\"OUTSIDE_PROGRAM\") != \"\" {\n\t\treturn nil\n\t}\n"},
	{file: "pkg/scheduler/scheduler.go", after: "func WithFairSharing(fs *config.FairSharing) Option {\n", insert: "\trecord.Note(\"fairSharing\", fs)\n"},
	{file: "pkg/scheduler/scheduler.go", after: "func WithAdmissionFairSharing(afs *config.AdmissionFairSharing) Option {\n", insert: "\trecord.Note(\"admissionFairSharing\", afs)\n"},
	{file: "pkg/scheduler/scheduler.go", after: "func WithQuotaCheckStrategy(qcs config.QuotaCheckStrategy) Option {\n", insert: "\trecord.Note(\"quotaCheckStrategy\", qcs)\n"},
	{file: "pkg/cache/queue/manager.go", after: "func WithResourceTransformations(transforms []config.ResourceTransformation) Option {\n", insert: "\trecord.Note(\"transformations\", transforms)\n"},
	{file: "pkg/cache/queue/manager.go", after: "func WithExcludedResourcePrefixes(excludedPrefixes []string) Option {\n", insert: "\trecord.Note(\"excludedPrefixes\", excludedPrefixes)\n"},
	{file: "pkg/controller/jobframework/integrationmanager.go", after: "func EnableIntegration(name string) {\n", insert: "\trecord.Add(\"frameworks\", name)\n"},
	{file: "pkg/controller/jobframework/reconciler.go", after: "\t\topt(&options)\n\t}\n\treturn options\n", insert: jobOptions, instead: true},
	{file: "pkg/controller/jobframework/reconciler.go", after: "func WithWaitForPodsReady(cfg *configapi.WaitForPodsReady) Option {\n\treturn func(o *Options) {\n", insert: "\t\trecord.Note(\"waitForPodsReady\", cfg)\n"},
	{file: "pkg/controller/jobframework/reconciler.go", after: "func WithObjectRetentionPolicies(value *configapi.ObjectRetentionPolicies) Option {\n\treturn func(o *Options) {\n", insert: "\t\trecord.Note(\"objectRetentionPolicies\", value)\n"},
	{file: "pkg/controller/admissionchecks/multikueue/controllers.go", after: "\t\to(options)\n\t}\n", insert: multiKueueOptions},
	{file: "pkg/controller/failurerecovery/pod_termination_controller.go", after: "SetupWithManager(mgr ctrl.Manager, cfg *configapi.Configuration) (string, error) {\n", insert: "\trecord.Note(\"failureRecovery\", true)\n"},
	// The grace period is a minute, and no file says another one: these specs wait as long.
	{file: "test/integration/singlecluster/controller/failurerecovery/pod_termination_controller_test.go", after: "forcefulTerminationCheckTimeout = 2 * time.Second", insert: "forcefulTerminationCheckTimeout = 70 * time.Second", instead: true},
	// Kueue's own program, for comparison: certificates are the suite's, and metrics are read without any.
	{file: "cmd/kueue/main.go", after: "\tparsedTLSConfig := &tlsconfig.TLS{}\n", insert: "\tmetricsServerOptions.SecureServing, metricsServerOptions.FilterProvider = false, nil\n"},
	{file: "cmd/kueue/main.go", after: "\t\tmetricsCertPath := \"/etc/kueue/metrics/certs\"\n", insert: "\t\tmetricsCertPath := cfg.Webhook.CertDir\n", instead: true},
	{file: "pkg/visibility/server.go", after: "kubeConfig *rest.Config, tlsOpts *tlsconfig.TLS) error {\n", insert: "\tcertDir = cfg.Webhook.CertDir\n"},
}

const jobOptions = `		opt(&options)
	}
	if options.ManageJobsWithoutQueueName {
		record.Note("manageJobsWithoutQueueName", true)
	}
	if options.ManagedJobsNamespaceSelector != nil {
		record.Note("namespaceSelector", options.ManagedJobsNamespaceSelector)
	}
	record.Add("labelKeysToCopy", options.LabelKeysToCopy.UnsortedList()...)
	record.Add("annotationsToCopy", options.AnnotationsToCopy.UnsortedList()...)
	record.Add("frameworks", options.EnabledFrameworks.UnsortedList()...)
	record.Add("externalFrameworks", options.EnabledExternalFrameworks.UnsortedList()...)
	return options
`

const multiKueueOptions = `	record.Note("namespace", namespace)
	record.Note("multiKueue", map[string]any{
		"gcInterval": options.gcInterval.String(), "origin": options.origin,
		"workerLostTimeout": options.workerLostTimeout.String(), "dispatcherName": options.dispatcherName,
	})
`

// ordered is a container whose specs after the first failure would be skipped; they are run all the same.
var ordered = regexp.MustCompile(`^(\t*)[^\t].*ginkgo\.Ordered, (ginkgo\.ContinueOnFailure, )?func`)

// continued has ordered containers go on after a failure. Those within another one do as that does.
func continued(text string) string {
	lines := strings.Split(text, "\n")
	end := "" // of the outermost one
	for i, line := range lines {
		found := ordered.FindStringSubmatch(line)
		switch {
		case end != "" && line == end:
			end = ""
		case end == "" && found != nil:
			end = found[1] + "})"
			if found[2] == "" {
				lines[i] = strings.Replace(line, "ginkgo.Ordered, func", "ginkgo.Ordered, ginkgo.ContinueOnFailure, func", 1)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// apply changes a copy of Kueue's module.
func apply(kueue string) error {
	for _, e := range edits {
		err := change(filepath.Join(kueue, filepath.FromSlash(e.file)), func(text string) (string, error) {
			if n := strings.Count(text, e.after); n != 1 {
				return "", fmt.Errorf("%s has %q %d times: this version of Kueue needs another edit", e.file, e.after, n)
			}
			if e.instead {
				return imports(strings.Replace(text, e.after, e.insert, 1)), nil
			}
			return imports(strings.Replace(text, e.after, e.after+e.insert, 1)), nil
		})
		if err != nil {
			return err
		}
	}
	return filepath.WalkDir(filepath.Join(kueue, "test", "integration"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		return change(path, func(text string) (string, error) {
			return continued(text), nil
		})
	})
}

func change(path string, how func(string) (string, error)) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := how(string(data))
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// imports adds those that the edits need.
func imports(text string) string {
	for _, path := range []string{"os", module + "/record", module + "/outside"} {
		uses := strings.Contains(text, filepath.Base(path)+".") && (path != "os" || strings.Contains(text, "OUTSIDE_PROGRAM"))
		if uses && !strings.Contains(text, `"`+path+`"`) {
			text = strings.Replace(text, "import (\n", "import (\n\t\""+path+"\"\n", 1)
		}
	}
	return text
}
