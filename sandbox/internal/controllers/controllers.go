package controllers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
)

const (
	minResync = 12 * time.Hour
	// syncPeriod is how often it is looked for new kinds of objects.
	syncPeriod = 30 * time.Second
)

// Config says for whom they work.
type Config struct {
	API *rest.Config // as system:kube-controller-manager
	// Files: the cluster's CA, its key, and the key that signs tokens of service accounts.
	CACert, CAKey, ServiceAccountKey string
	// NodeGrace is for how long a node may be silent before it is taken for lost.
	NodeGrace time.Duration
}

// manager is what the controllers share.
type manager struct {
	Config
	ca []byte

	root, accounts   clientbuilder.ControllerClientBuilder
	informers        informers.SharedInformerFactory
	metadata         metadata.Interface
	everything       informerfactory.InformerFactory // of any kind, by its metadata
	mapper           *restmapper.DeferredDiscoveryRESTMapper
	informersStarted chan struct{}
}

// Run runs all controllers until the context ends.
func Run(ctx context.Context, c Config) error {
	m, err := newManager(c)
	if err != nil {
		return err
	}
	var runs []func(context.Context)
	for i := range table {
		run, err := m.prepare(ctx, &table[i])
		if err != nil {
			return fmt.Errorf("controller %s: %w", table[i].name, err)
		}
		if run != nil {
			runs = append(runs, run)
		}
	}
	m.informers.Start(ctx.Done())
	defer m.informers.Shutdown()
	m.everything.Start(ctx.Done())
	close(m.informersStarted)

	var running sync.WaitGroup
	for _, run := range runs {
		running.Go(func() { run(ctx) })
	}
	// Kinds come and go with CRDs.
	running.Go(func() { wait.UntilWithContext(ctx, func(context.Context) { m.mapper.Reset() }, syncPeriod) })
	running.Wait()
	return nil
}

func newManager(c Config) (*manager, error) {
	m := &manager{Config: c, informersStarted: make(chan struct{}), root: clientbuilder.SimpleControllerClientBuilder{ClientConfig: c.API}}
	var err error
	if m.ca, err = os.ReadFile(c.CACert); err != nil {
		return nil, err
	}
	shared, err := m.root.Client("shared-informers")
	if err != nil {
		return nil, err
	}
	m.accounts = clientbuilder.NewDynamicClientBuilder(rest.AnonymousClientConfig(c.API), shared.CoreV1(), metav1.NamespaceSystem)
	name, err := cache.NewInformerName("kube-controller-manager")
	if err != nil {
		return nil, err
	}
	m.informers = informers.NewSharedInformerFactoryWithOptions(shared, resync(), informers.WithTransform(withoutManagedFields), informers.WithInformerName(name))
	config, err := m.root.Config("metadata-informers")
	if err != nil {
		return nil, err
	}
	if m.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	m.everything = informerfactory.NewInformerFactory(m.informers,
		metadatainformer.NewSharedInformerFactoryWithOptions(m.metadata, resync(), metadatainformer.WithTransform(withoutManagedFields)))
	discovery, err := m.root.DiscoveryClient("controller-discovery")
	if err != nil {
		return nil, err
	}
	m.mapper = restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(discovery))
	return m, nil
}

// env is what a controller is made of.
type env struct {
	*manager
	ctx    context.Context
	client kubernetes.Interface // with the rights of its service account
}

func (e *env) core() coreinformers.Interface { return e.informers.Core().V1() }
func (e *env) apps() appsinformers.Interface { return e.informers.Apps().V1() }

// prepare makes a controller; nil where a gate of it is off.
func (m *manager) prepare(ctx context.Context, c *entry) (run func(context.Context), err error) {
	for _, gate := range c.gates {
		if !utilfeature.DefaultFeatureGate.Enabled(gate) {
			return nil, nil
		}
	}
	logger := klog.LoggerWithName(klog.FromContext(ctx), c.name)
	e := &env{manager: m, ctx: klog.NewContext(ctx, logger)}
	if c.account != "" {
		if e.client, err = m.accounts.Client(c.account); err != nil {
			return nil, err
		}
	}
	made, err := c.make(e)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { made.Run(klog.NewContext(ctx, logger), c.workers) }, nil
}

// resync is another time for each, so that they do not list all at once.
func resync() time.Duration { return time.Duration((1 + rand.Float64()) * float64(minResync)) }

// withoutManagedFields keeps in memory what a controller reads.
func withoutManagedFields(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}
