package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	kwoklog "sigs.k8s.io/kwok/pkg/log"

	"github.com/elastic-ai/elastic/sandbox/internal/nodespec"
	"github.com/elastic-ai/elastic/sandbox/internal/pki"
)

// Kubelets plays all kubelets of a cluster.
type Kubelets struct {
	client   kubernetes.Interface
	listener net.Listener
	server   *http.Server
	nodes    corelisters.NodeLister
	// nodeInformer is what nodes lists; joined are addresses of nodes that are not of the fleet.
	nodeInformer cache.SharedIndexInformer
	joined       *addresses
	cancel       context.CancelFunc
	podsDone     chan struct{}
}

// Start begins to play nodes and pods. log takes what KWOK has to say.
func Start(config *rest.Config, files pki.Files, log io.Writer) (*Kubelets, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	serving, err := serverTLS(files)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(kwoklog.NewContext(context.Background(), kwoklog.NewLogger(log, kwoklog.LevelWarn)))
	k := &Kubelets{client: client, listener: listener, cancel: cancel, joined: newAddresses(nodeNetwork), podsDone: make(chan struct{})}
	if err := k.start(ctx, serving); err != nil {
		cancel()
		listener.Close()
		return nil, err
	}
	return k, nil
}

func (k *Kubelets) start(ctx context.Context, serving *tls.Config) error {
	factory := func(options ...informers.SharedInformerOption) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(k.client, 0, append(options, informers.WithTransform(dropManagedFields))...)
	}
	cluster := factory()
	bound := factory(informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	}))
	leaseFactory := factory(informers.WithNamespace(corev1.NamespaceNodeLease))

	nodeInformer := cluster.Core().V1().Nodes()
	podInformer := bound.Core().V1().Pods()
	leases := leaseFactory.Coordination().V1().Leases()
	leases.Informer() // asked for, so that it is started
	k.nodes, k.nodeInformer = nodeInformer.Lister(), nodeInformer.Informer()

	pods, err := newPods(k.client, k.nodes, podInformer.Informer())
	if err != nil {
		return err
	}
	nodes, err := newNodes(k.client, k.nodes, leases.Lister(), k.port())
	if err != nil {
		return err
	}
	if err := nodes.watch(ctx, nodeInformer.Informer(), pods.onNode); err != nil {
		return err
	}
	for _, factory := range []informers.SharedInformerFactory{leaseFactory, bound, cluster} {
		factory.Start(ctx.Done())
	}
	if err := nodes.start(ctx); err != nil {
		return err
	}
	for _, factory := range []informers.SharedInformerFactory{leaseFactory, bound, cluster} {
		for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return fmt.Errorf("no %v from the API server", kind)
			}
		}
	}
	k.server = &http.Server{Handler: newHandler(podInformer.Lister()), TLSConfig: serving, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := k.server.ServeTLS(k.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			kwoklog.FromContext(ctx).Error("kubelet server ended", "err", err)
		}
	}()
	go func() {
		defer close(k.podsDone)
		pods.run(ctx)
	}()
	return nil
}

// dropManagedFields halves what thousands of pods take in memory; the API server
// keeps its own copy on updates.
func dropManagedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// serverTLS lets in the API server alone: it has already asked whether the
// caller may read the logs.
func serverTLS(files pki.Files) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(files.Kubelet.Cert, files.Kubelet.Key)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(files.CA.Cert)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS12,
		VerifyConnection: func(c tls.ConnectionState) error {
			if name := c.PeerCertificates[0].Subject.CommonName; name != pki.KubeletClientName {
				return fmt.Errorf("%q is not the API server", name)
			}
			return nil
		},
	}, nil
}

func (k *Kubelets) port() int { return k.listener.Addr().(*net.TCPAddr).Port }

// SetFleet makes the cluster's fleet the given one and waits until all of it may
// be scheduled on.
func (k *Kubelets) SetFleet(ctx context.Context, fleet []nodespec.Node) error {
	if err := EnsureFleet(ctx, k.client, fleet, int32(k.port())); err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := k.nodes.List(labels.Everything())
		if err != nil {
			return err
		}
		ready := FleetReady(list)
		if ready == len(fleet) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes are ready: %w", ready, len(fleet), context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// Stop ends all of it.
func (k *Kubelets) Stop() {
	k.cancel()
	_ = k.server.Close()
	<-k.podsDone
}
