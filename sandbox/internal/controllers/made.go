package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	schedulinginformers "k8s.io/client-go/informers/scheduling/v1beta1"
	"k8s.io/client-go/kubernetes"
	k8sscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/certificates/signer"
	"k8s.io/kubernetes/pkg/controller/devicetainteviction"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
	"k8s.io/kubernetes/pkg/controller/volume/persistentvolume"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/kubernetes/pkg/quota/v1/install"
	signing "k8s.io/kubernetes/pkg/serviceaccount"
)

// loop is a controller that knows no workers.
type loop func(context.Context)

func (l loop) Run(ctx context.Context, _ int) { l(ctx) }

// both run until the context ends.
func both(one, other func(context.Context)) loop {
	return func(ctx context.Context) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			other(ctx)
		}()
		one(ctx)
		<-ended
	}
}

// newTokens makes Secrets with tokens for accounts, for who asks for them.
func newTokens(e *env) (runner, error) {
	key, err := keyutil.PrivateKeyFromFile(e.ServiceAccountKey)
	if err != nil {
		return nil, err
	}
	tokens, err := signing.JWTTokenGenerator(signing.LegacyIssuer, key)
	if err != nil {
		return nil, err
	}
	client, err := e.root.Client("tokens-controller") // others' accounts may have none without it
	if err != nil {
		return nil, err
	}
	return serviceaccount.NewTokensController(klog.FromContext(e.ctx), e.core().ServiceAccounts(), e.core().Secrets(), client,
		serviceaccount.TokensControllerOptions{TokenGenerator: tokens, RootCA: e.ca})
}

func newNamespaces(e *env) (runner, error) {
	config, err := e.accounts.Config("namespace-controller")
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return namespace.NewNamespaceController(e.ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		e.core().Namespaces(), 5*time.Minute, corev1.FinalizerKubernetes), nil
}

func newGarbageCollector(e *env) (runner, error) {
	const account = "generic-garbage-collector"
	client, err := e.accounts.Client(account)
	if err != nil {
		return nil, err
	}
	discovery, err := e.accounts.DiscoveryClient(account)
	if err != nil {
		return nil, err
	}
	config, err := e.accounts.Config(account)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	owners := garbagecollector.NewDependencyGraphBuilder(e.ctx, e.metadata, e.mapper, garbagecollector.DefaultIgnoredResources(), e.everything, e.informersStarted)
	gc, err := garbagecollector.NewComposedGarbageCollector(e.ctx, client, objects, e.mapper, owners)
	if err != nil {
		return nil, err
	}
	return both(
		func(ctx context.Context) { gc.Run(ctx, 20, syncPeriod) },
		func(ctx context.Context) { gc.Sync(ctx, discovery, syncPeriod) },
	), nil
}

// signers are runners, one for each name under which certificates are asked for.
type signers []*signer.CSRSigningController

func (s signers) Run(ctx context.Context, workers int) {
	for _, one := range s[1:] {
		go one.Run(ctx, workers)
	}
	s[0].Run(ctx, workers)
}

func newSigners(e *env) (runner, error) {
	const valid = 365 * 24 * time.Hour
	requests := e.informers.Certificates().V1().CertificateSigningRequests()
	var all signers
	for _, sign := range []func(context.Context, kubernetes.Interface, certificatesinformers.CertificateSigningRequestInformer, string, string, time.Duration) (*signer.CSRSigningController, error){
		signer.NewKubeletServingCSRSigningController,
		signer.NewKubeletClientCSRSigningController,
		signer.NewKubeAPIServerClientCSRSigningController,
		signer.NewLegacyUnknownCSRSigningController,
	} {
		one, err := sign(e.ctx, e.client, requests, e.CACert, e.CAKey, valid)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// newPolicyStatus says in a policy's status which of its expressions have wrong types.
func newPolicyStatus(e *env) (runner, error) {
	discovery := e.client.Discovery()
	schemas := resolver.NewDefinitionsSchemaResolver(openapi.GetOpenAPIDefinitions, k8sscheme.Scheme, apiextensionsscheme.Scheme).
		Combine(&resolver.ClientDiscoveryResolver{Discovery: discovery})
	return validatingadmissionpolicystatus.NewController(e.informers.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		e.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), &validating.TypeChecker{SchemaResolver: schemas, RestMapper: e.mapper})
}

func newJobs(e *env) (runner, error) {
	var workloads schedulinginformers.WorkloadInformer
	var groups schedulinginformers.PodGroupInformer
	if utilfeature.DefaultFeatureGate.Enabled(features.WorkloadWithJob) {
		workloads, groups = e.informers.Scheduling().V1beta1().Workloads(), e.informers.Scheduling().V1beta1().PodGroups()
	}
	return job.NewController(e.ctx, e.client, e.core().Pods(), e.informers.Batch().V1().Jobs(), workloads, groups)
}

func newDisruption(e *env) (runner, error) {
	const account = "disruption-controller"
	client, err := e.accounts.Client(account)
	if err != nil {
		return nil, err
	}
	config, err := e.accounts.Config(account)
	if err != nil {
		return nil, err
	}
	scales, err := scale.NewForConfig(config, e.mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return nil, err
	}
	return disruption.NewDisruptionController(e.ctx, e.core().Pods(), e.informers.Policy().V1().PodDisruptionBudgets(), e.core().ReplicationControllers(),
		e.apps().ReplicaSets(), e.apps().Deployments(), e.apps().StatefulSets(), client, e.mapper, scales, client.Discovery()), nil
}

func newQuota(e *env) (runner, error) {
	const account = "resourcequota-controller"
	client, err := e.accounts.Client(account)
	if err != nil {
		return nil, err
	}
	discovery, err := e.accounts.DiscoveryClient(account)
	if err != nil {
		return nil, err
	}
	kinds := discovery.ServerPreferredNamespacedResources
	counted, err := install.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(e.informers.ForResource), e.informers)
	if err != nil {
		return nil, err
	}
	quota, err := resourcequota.NewController(e.ctx, &resourcequota.ControllerOptions{
		QuotaClient: client.CoreV1(), ResourceQuotaInformer: e.core().ResourceQuotas(), ResyncPeriod: controller.StaticResyncPeriodFunc(5 * time.Minute),
		InformerFactory: e.everything, ReplenishmentResyncPeriod: resync, DiscoveryFunc: kinds, IgnoredResourcesFunc: counted.IgnoredResources,
		InformersStarted: e.informersStarted, Registry: generic.NewRegistry(counted.Evaluators()), UpdateFilter: install.DefaultUpdateFilter(),
	})
	if err != nil {
		return nil, err
	}
	return both(
		func(ctx context.Context) { quota.Run(ctx, 5) },
		func(ctx context.Context) { quota.Sync(ctx, kinds, syncPeriod) },
	), nil
}

func newNodeLifecycle(e *env) (runner, error) {
	n, err := nodelifecycle.NewNodeLifecycleController(e.ctx, e.informers.Coordination().V1().Leases(), e.core().Pods(), e.core().Nodes(), e.apps().DaemonSets(),
		e.client, 5*time.Second, time.Minute, e.NodeGrace, 0.1, 0.01, 50, 0.55)
	return loop(func(ctx context.Context) { n.Run(ctx) }), err
}

func newDeviceTaintEviction(e *env) (runner, error) {
	resources := e.informers.Resource().V1()
	d := devicetainteviction.New(e.client, e.core().Pods(), resources.ResourceClaims(), resources.ResourceSlices(), resources.DeviceTaintRules(),
		resources.DeviceClasses(), "device-taint-eviction-controller")
	return loop(func(ctx context.Context) {
		if err := d.Run(ctx, 8); err != nil {
			klog.FromContext(ctx).Error(err, "pods are no longer evicted from devices with taints")
		}
	}), nil
}

// newVolumeBinder binds claims to volumes that somebody made: there are no plugins here that would make one.
func newVolumeBinder(e *env) (runner, error) {
	b, err := persistentvolume.NewController(e.ctx, persistentvolume.ControllerParameters{
		KubeClient: e.client, SyncPeriod: 15 * time.Second, VolumeInformer: e.core().PersistentVolumes(), ClaimInformer: e.core().PersistentVolumeClaims(),
		ClassInformer: e.informers.Storage().V1().StorageClasses(), PodInformer: e.core().Pods(), NodeInformer: e.core().Nodes(), EnableDynamicProvisioning: true,
	})
	return loop(func(ctx context.Context) { b.Run(ctx) }), err
}
