// Package cluster is the client of a cluster for commands: the flags that name one, the connection, and
// the commands that only read and print.
//
// Words: docs/design/glossary.md.
package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	jobsv1alpha1 "github.com/elastic-ai/elastic/api/jobs/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// Flags say which cluster and namespace.
type Flags struct {
	Kubeconfig, Context, Local, Namespace string
}

// AddTo gives a command and those below it the flags.
func (f *Flags) AddTo(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default $KUBECONFIG, ~/.kube/config, or the local cluster if it runs)")
	flags.StringVar(&f.Context, "context", "", "context of the kubeconfig")
	flags.StringVar(&f.Local, "local", "", "a cluster that 'elastic up' made, by name")
	flags.StringVarP(&f.Namespace, "namespace", "n", "", "namespace (default that of the context)")
}

// Client is a connection to a cluster.
type Client struct {
	client.WithWatch
	// Core is for what the client has not: logs, attaching.
	Core      kubernetes.Interface
	REST      *rest.Config
	Namespace string
}

// Connect finds the cluster the flags and the environment name. Nothing is sent
// before the first request.
func (f *Flags) Connect() (*Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	if err := f.useLocal(rules); err != nil {
		return nil, err
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.Context})
	config, err := loader.ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			err = errors.New("no cluster is configured: set KUBECONFIG, give --kubeconfig, or start one with 'elastic up'")
		}
		return nil, err
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, 0 // a person's command; the server has its own limits
	local.AskWebhooksAgain(config)
	return Connect(config, cmp.Or(f.Namespace, namespace))
}

// useLocal points the rules at a local cluster: the one asked for, or the one
// that runs where nothing else is configured.
func (f *Flags) useLocal(rules *clientcmd.ClientConfigLoadingRules) error {
	name := f.Local
	if name == "" {
		if f.Kubeconfig != "" || f.Context != "" || configured(rules) || os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
			return nil
		}
		name = cmp.Or(os.Getenv("ELASTIC_NAME"), local.DefaultName)
	}
	cluster, err := local.Open(name)
	if err != nil {
		return err
	}
	if !cluster.Running() {
		if f.Local == "" {
			return nil
		}
		return fmt.Errorf("cluster %q is not running: start it with 'elastic up --name %s'", name, name)
	}
	rules.ExplicitPath = cluster.Kubeconfig()
	return nil
}

func configured(rules *clientcmd.ClientConfigLoadingRules) bool {
	for _, file := range rules.Precedence {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return false
}

// Connect makes a connection from a client configuration.
func Connect(config *rest.Config, namespace string) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, kueue.AddToScheme, egpu.AddToScheme, jobsv1alpha1.AddToScheme, queuepolicy.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mapper, err := newMapper(config)
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Client{WithWatch: c, Core: core, REST: config, Namespace: namespace}, nil
}

// newMapper knows the kinds commands use without asking the server; about any
// other it asks. A command is then one round trip, not five.
func newMapper(config *rest.Config) (apimeta.RESTMapper, error) {
	known := apimeta.NewDefaultRESTMapper(nil)
	for _, gvk := range []schema.GroupVersionKind{
		kueue.SchemeGroupVersion.WithKind("ClusterQueue"), kueue.SchemeGroupVersion.WithKind("Cohort"), kueue.SchemeGroupVersion.WithKind("ResourceFlavor"),
		kueue.SchemeGroupVersion.WithKind("WorkloadPriorityClass"), kueue.SchemeGroupVersion.WithKind("AdmissionCheck"), kueue.SchemeGroupVersion.WithKind("Topology"),
		egpu.GroupVersion.WithKind("GPU"), jobsv1alpha1.GroupVersion.WithKind("JobKind"),
		corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithKind("Namespace"),
		schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"),
	} {
		known.Add(gvk, apimeta.RESTScopeRoot)
	}
	for _, gvk := range []schema.GroupVersionKind{
		kueue.SchemeGroupVersion.WithKind("LocalQueue"), kueue.SchemeGroupVersion.WithKind("Workload"),
		corev1.SchemeGroupVersion.WithKind("Event"), corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
		batchv1.SchemeGroupVersion.WithKind("CronJob"), {Group: "apps.kubedl.io", Version: "v1alpha1", Kind: "Cron"},
	} {
		known.Add(gvk, apimeta.RESTScopeNamespace)
	}
	for _, kind := range kinds.Table() {
		plural := kind.GVK.GroupVersion().WithResource(kind.Spec.Resource)
		known.AddSpecific(kind.GVK, plural, plural, apimeta.RESTScopeNamespace)
	}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	others, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		return nil, err
	}
	return apimeta.FirstHitRESTMapper{MultiRESTMapper: apimeta.MultiRESTMapper{known, others}}, nil
}
