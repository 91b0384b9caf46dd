package controlplane

import (
	"context"
	"fmt"
	"maps"
	"net"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/elastic-ai/elastic/sandbox/internal/pki"
)

const (
	serviceRange = "10.96.0.0/12"
	issuer       = "https://kubernetes.default.svc.cluster.local"
	// A laptop that naps or stalls must not lose all its nodes at once.
	nodeGrace = 2 * time.Minute
	// One process carries the whole load, so the clients' own brakes are off.
	clientQPS, clientBurst = 2000, 4000
)

// flags are the values of a component's flags by name.
type flags map[string]string

// set fills a component's options the way its command line would.
func (f flags) set(sets cliflag.NamedFlagSets) error {
	for name, value := range f {
		found := false
		for _, fs := range sets.FlagSets {
			if fs.Lookup(name) == nil {
				continue
			}
			if err := fs.Set(name, value); err != nil {
				return fmt.Errorf("--%s=%s: %w", name, value, err)
			}
			found = true
			break
		}
		if !found {
			return fmt.Errorf("--%s: no such flag", name)
		}
	}
	return nil
}

func prepareAPIServer(ctx context.Context, files pki.Files, etcd string, listener net.Listener, more map[string]string) (func(context.Context) error, error) {
	o := apiserveroptions.NewServerRunOptions()
	address := listener.Addr().(*net.TCPAddr)
	o.SecureServing.Listener = listener
	o.SecureServing.BindPort = address.Port
	o.SecureServing.BindAddress = address.IP
	// Endpoints may not hold a loopback address, so the kubernetes service has none.
	o.SecureServing.ExternalAddress = address.IP
	all := flags{
		"endpoint-reconciler-type":           "none",
		"etcd-servers":                       etcd,
		"client-ca-file":                     files.CA.Cert,
		"tls-cert-file":                      files.APIServer.Cert,
		"tls-private-key-file":               files.APIServer.Key,
		"authorization-mode":                 "Node,RBAC",
		"enable-admission-plugins":           "NodeRestriction",
		"allow-privileged":                   "true",
		"service-cluster-ip-range":           serviceRange,
		"service-account-issuer":             issuer,
		"service-account-key-file":           files.ServiceAccountKey,
		"service-account-signing-key-file":   files.ServiceAccountKey,
		"requestheader-client-ca-file":       files.ProxyCA.Cert,
		"requestheader-allowed-names":        "front-proxy-client",
		"requestheader-username-headers":     "X-Remote-User",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"proxy-client-cert-file":             files.ProxyClient.Cert,
		"proxy-client-key-file":              files.ProxyClient.Key,
		"kubelet-certificate-authority":      files.CA.Cert,
		"kubelet-client-certificate":         files.KubeletClient.Cert,
		"kubelet-client-key":                 files.KubeletClient.Key,
		// Simulated nodes have an InternalIP of their own that does not answer;
		// their kubelet listens on loopback, which they publish as ExternalIP.
		"kubelet-preferred-address-types": "ExternalIP,InternalIP,Hostname",
	}
	maps.Copy(all, more)
	if err := all.set(o.Flags()); err != nil {
		return nil, err
	}
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	return func(ctx context.Context) error { return apiserver.Run(ctx, completed) }, nil
}

func prepareScheduler(ctx context.Context, files pki.Files, kubeconfig, configFile string, listener net.Listener) (func(context.Context) error, error) {
	o := scheduleroptions.NewOptions()
	o.SecureServing.Listener = listener
	o.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	err := flags{
		"config":                    configFile,
		"authentication-kubeconfig": kubeconfig,
		"authorization-kubeconfig":  kubeconfig,
		"client-ca-file":            files.CA.Cert,
		"tls-cert-file":             files.APIServer.Cert,
		"tls-private-key-file":      files.APIServer.Key,
	}.set(*o.Flags)
	if err != nil {
		return nil, err
	}
	name, err := cache.NewInformerName("kube-scheduler")
	if err != nil {
		return nil, err
	}
	o.InformerName = name
	completed, s, err := scheduler.Setup(ctx, o)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return scheduler.Run(ctx, completed, s) }, nil
}
