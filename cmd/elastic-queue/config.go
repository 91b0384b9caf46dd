package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/config/v1beta1"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/config/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/jobs"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/program"
	"github.com/elastic-ai/elastic/internal/queue/kueueconfig"
)

// formats are Kueue's files, read as they are.
func formats() program.Formats[*v1alpha1.QueueConfiguration] {
	return program.Formats[*v1alpha1.QueueConfiguration]{
		kueuev1beta1.SchemeGroupVersion.WithKind("Configuration"): kueueFile(kueueconfig.FromV1beta1),
		kueuev1beta2.SchemeGroupVersion.WithKind("Configuration"): kueueFile(kueueconfig.FromV1beta2),
	}
}

func kueueFile[F any](take func(*F, *v1alpha1.QueueConfiguration) error) func([]byte, *v1alpha1.QueueConfiguration) error {
	return func(doc []byte, cfg *v1alpha1.QueueConfiguration) error {
		in := new(F)
		if err := program.DecodeStrict(doc, in); err != nil {
			return err
		}
		return take(in, cfg)
	}
}

func flags(cmd *cobra.Command, cfg *v1alpha1.QueueConfiguration) {
	cmd.Flags().Var(features.Flag{Into: &cfg.FeatureGates}, "feature-gates", "Kueue's feature gates to switch; they win over the file's")
	cmd.Flags().BoolVar(&cfg.NoDecisions, "no-decisions", cfg.NoDecisions, "run everything, but leave admission and preemption to another scheduler")
	// Kueue's deployment sets it.
	cmd.Flags().Var(zapLevel{&cfg.Log.Level}, "zap-log-level", "Kueue's way to say --log-level")
	_ = cmd.Flags().MarkHidden("zap-log-level")
}

// zapLevel reads the log level as Kueue's deployment writes it: a name, or a
// number that grows with detail.
type zapLevel struct{ level *string }

func (z zapLevel) String() string {
	if z.level == nil {
		return ""
	}
	return *z.level
}

func (z zapLevel) Set(text string) error {
	if n, err := strconv.Atoi(text); err == nil {
		*z.level = "info"
		if n > 2 {
			*z.level = "debug"
		}
		return nil
	}
	*z.level = text
	return nil
}

func (z zapLevel) Type() string { return "level" }

// jobOptions are what the configuration says of jobs.
func jobOptions(cfg *v1alpha1.QueueConfiguration, gates features.Set) jobs.Options {
	options := jobs.Options{
		ManageJobsWithoutQueueName: cfg.ManageJobsWithoutQueueName,
		Namespaces:                 cfg.ManagedJobsNamespaceSelector,
		Declared:                   cfg.JobKinds,
		NoQueueLabels:              !gates.Enabled(features.AssignQueueLabelsForPods),
		ResizableGroups:            !gates.Enabled(features.LWSImmutableGroupSize),
		NoTopology:                 !gates.Enabled(features.TopologyAwareScheduling),
		NoSliceLayers:              !gates.Enabled(features.TASMultiLayerTopology),
		NoGates:                    !gates.Enabled(features.AdmissionGatedBy),
		RayAndSparkMayLeave:        !gates.Enabled(features.ValidateRayAndSparkJobUpdates),
		DefaultPriorityClass:       gates.Enabled(features.WorkloadPriorityClassDefaulting),
		RequeuePods:                !gates.Enabled(features.SkipReassignment),
		LeaveOrphans:               !gates.Enabled(features.FinishOrphanedWorkloads),
		Concurrency:                cfg.Controllers.Concurrency,
		WaitsForPods:               cfg.WaitForPodsReady != nil && !gates.Enabled(features.DisableWaitForPodsReady),
		Rules: kinds.Rules{
			ShortNames: gates.Enabled(features.ShortWorkloadNames), NamesInLabels: !gates.Enabled(features.WorkloadIdentifierAnnotations),
			FastRelease:   gates.Enabled(features.FastQuotaRelease),
			SparkOverhead: cfg.Controllers.CountSparkOverhead, ReclaimReplicas: cfg.Controllers.ReclaimKubeflowPods,
			KeepSlices: cfg.Controllers.KeepSlicesUntilAdmitted, Submitters: cfg.Controllers.RecordSubmitters,
		},
		MultiKueue:  gates.Enabled(features.MultiKueue),
		NoPodsReady: !ptr.Deref(cfg.Controllers.ReportPodsReady, true) && (cfg.WaitForPodsReady == nil || gates.Enabled(features.DisableWaitForPodsReady)),
	}
	if gates.Enabled(features.MultiKueueAdaptersForCustomJobs) {
		for _, framework := range cfg.MultiKueue.ExternalFrameworks {
			options.MultiKueueExternal = append(options.MultiKueueExternal, framework.Name)
		}
	}
	if in := cfg.Integrations; in != nil {
		options.BuiltIn, options.External, options.CopyLabels = in.Frameworks, in.ExternalFrameworks, in.LabelKeysToCopy
	}
	if gates.Enabled(features.CustomMetricLabels) {
		copyMetricLabels(&options, cfg.QueueMetrics.CustomLabels)
	}
	if on, given := gates.Given(features.SparkApplicationIntegration); given && !on {
		if len(options.BuiltIn) == 0 {
			options.BuiltIn = kinds.Names()
		}
		options.BuiltIn = slices.DeleteFunc(slices.Clone(options.BuiltIn), func(name string) bool {
			return name == "sparkoperator.k8s.io/sparkapplication"
		})
	}
	return options
}

// copyMetricLabels has workloads carry what metrics show of them, which is said on jobs.
func copyMetricLabels(options *jobs.Options, specs []kueuev1beta2.ControllerMetricsCustomLabel) {
	options.CopyLabels = slices.Clone(options.CopyLabels)
	for _, spec := range specs {
		switch {
		case ptr.Deref(spec.SourceKind, "") != kueuev1beta2.SourceKindWorkload:
		case spec.SourceAnnotationKey != "":
			options.CopyAnnotations = append(options.CopyAnnotations, spec.SourceAnnotationKey)
		default:
			options.CopyLabels = append(options.CopyLabels, cmp.Or(spec.SourceLabelKey, spec.Name))
		}
	}
}

// namespaceOf is where the program's own objects are.
func namespaceOf(cfg *v1alpha1.QueueConfiguration) string {
	return cmp.Or(cfg.Webhook.Namespace, cfg.LeaderElection.Namespace)
}

// ensureNamespace makes the namespace of the lease and the certificate, where
// an installation has not: a program started by hand against a bare API server
// just works. Without the right to look, it is taken to be there.
func ensureNamespace(ctx context.Context, c client.Client, cfg *v1alpha1.QueueConfiguration) error {
	name := namespaceOf(cfg)
	namespace := &corev1.Namespace{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if !apierrors.IsNotFound(err) {
		if apierrors.IsForbidden(err) {
			return nil
		}
		return err
	}
	namespace.Name = name
	if err := c.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("namespace %s is not there, create it or name another: %w", name, err)
	}
	return nil
}
