// Command elastic-web serves the page in a cluster, to each person with their own rights.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/certs"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/program"
	"github.com/elastic-ai/elastic/internal/web"
)

func main() {
	program.Main(program.Program[*v1alpha1.WebConfiguration]{
		Name:  "elastic-web",
		Short: "Show the cluster on a page, to each person with their own rights",
		Long: `elastic-web serves the page of "elastic web" to many people, over TLS. Each signs in
with a token of the cluster, or through a proxy that authenticates them, and sees and
does what their own rights allow. The program's own account may read nothing.`,
		Example: `  # In a cluster
  elastic-web --config /etc/elastic/web.yaml

  # Against any cluster
  elastic-web --kubeconfig ~/.kube/config --address 127.0.0.1:8443`,
		Defaults: v1alpha1.NewWebConfiguration,
		Flags: func(cmd *cobra.Command, cfg *v1alpha1.WebConfiguration) {
			cmd.Flags().StringVar(&cfg.BindAddress, "address", cfg.BindAddress, "where the page is served, over TLS")
		},
		Run: run,
	})
}

func run(ctx context.Context, env program.Env, cfg *v1alpha1.WebConfiguration) error {
	mgr, err := env.Manager(manager.Options{}, v1alpha1.LeaderElection{})
	if err != nil {
		return err
	}
	certificate, err := certificateOf(mgr, cfg)
	if err != nil {
		return err
	}
	proxy, err := proxyOf(cfg.Proxy)
	if err != nil {
		return err
	}
	prometheus, err := web.NewPrometheus(cfg.PrometheusURL)
	if err != nil {
		return err
	}
	var recorder *cluster.Client
	if cfg.History {
		if recorder, err = cluster.Connect(env.REST, ""); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", cfg.BindAddress)
	if err != nil {
		return err
	}
	page := web.New(ctx, web.Options{
		Access: web.NewInCluster(env.REST, proxy), Recorder: recorder, Prometheus: prometheus,
		Cluster: cfg.ClusterName, Prices: cfg.Prices, Currency: cfg.Currency,
	})
	server := &http.Server{
		Handler: page, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		// A client certificate is asked for, and looked at where it speaks for people: everyone else has none.
		TLSConfig: &tls.Config{GetCertificate: certificate, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert},
	}
	if proxy == nil {
		server.TLSConfig.ClientAuth = tls.NoClientCert // or browsers would ask people to choose one
	}
	if err := mgr.AddReadyzCheck("page", func(*http.Request) error { return nil }); err != nil {
		return err
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		env.Log.Info("serving the page", "address", listener.Addr().String(), "proxy", proxy != nil)
		defer context.AfterFunc(ctx, func() { _ = server.Close() })() // streams do not end by themselves
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// certificateOf is what the page is served with: from files, as often as they change, or made for this run.
func certificateOf(mgr manager.Manager, cfg *v1alpha1.WebConfiguration) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if cfg.CertDir != "" {
		watcher, err := certwatcher.New(filepath.Join(cfg.CertDir, "tls.crt"), filepath.Join(cfg.CertDir, "tls.key"))
		if err != nil {
			return nil, err
		}
		return watcher.GetCertificate, mgr.Add(watcher)
	}
	mgr.GetLogger().Info("no certDir is set: the certificate is made for this run, and browsers do not know who signed it")
	bundle, err := certs.Make(cfg.DNSNames, time.Now())
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(bundle.Certificate, bundle.Key)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, err
}

func proxyOf(cfg *v1alpha1.AuthenticatingProxy) (*web.Proxy, error) {
	if cfg == nil {
		return nil, nil
	}
	if len(cfg.AllowedNames) == 0 {
		return nil, errors.New("proxy.allowedNames is empty: name the common name of the proxy's certificate")
	}
	pem, err := os.ReadFile(cfg.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("proxy.clientCAFile: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("proxy.clientCAFile: %s has no certificate", cfg.ClientCAFile)
	}
	p := &web.Proxy{Roots: roots, Names: cfg.AllowedNames, UserHeaders: cfg.UserHeaders, GroupHeaders: cfg.GroupHeaders, GroupSeparator: cfg.GroupSeparator}
	if len(p.UserHeaders) == 0 {
		p.UserHeaders = []string{"X-Remote-User"}
	}
	if len(p.GroupHeaders) == 0 {
		p.GroupHeaders = []string{"X-Remote-Group"}
	}
	return p, nil
}
