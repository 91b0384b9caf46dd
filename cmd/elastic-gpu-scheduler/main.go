// Command elastic-gpu-scheduler chooses cards for pods and claims.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/certs"
	"github.com/elastic-ai/elastic/internal/gpu/extender"
	"github.com/elastic-ai/elastic/internal/gpu/service"
	"github.com/elastic-ai/elastic/internal/program"
)

func main() {
	os.Args = append(os.Args[:1], oldFlags(os.Args[1:])...)
	program.Main(program.Program[*v1alpha1.GPUSchedulerConfiguration]{
		Name:  "elastic-gpu-scheduler",
		Short: "Choose cards for pods and claims",
		Long: `elastic-gpu-scheduler answers kube-scheduler about pods that ask for GPU cards or
shares of them, chooses the cards, and gives ElasticGPUClaims their ElasticGPUs.

The flags -priority, -mode and -kubeconf and the variables PORT and THREADNESS of
the old scheduler are understood.`,
		Example: `  # In a cluster, with the pod's own service account
  elastic-gpu-scheduler --config /etc/elastic/gpu-scheduler.yaml

  # As it always was
  PORT=39999 THREADNESS=4 elastic-gpu-scheduler -priority=binpack -mode=gpushare,qgpu`,
		Defaults: defaults,
		Flags:    flags,
		Run:      run,
	})
}

// defaults are those of the file, changed by the environment.
func defaults() *v1alpha1.GPUSchedulerConfiguration {
	cfg := v1alpha1.NewGPUSchedulerConfiguration()
	if port := os.Getenv("PORT"); port != "" {
		cfg.Extender.BindAddress = ":" + port
	}
	if workers, err := strconv.Atoi(os.Getenv("THREADNESS")); err == nil && workers > 0 {
		cfg.Workers = workers
	}
	return cfg
}

func flags(cmd *cobra.Command, cfg *v1alpha1.GPUSchedulerConfiguration) {
	cmd.Flags().StringVar(&cfg.Policy, "priority", cfg.Policy, "placement policy: binpack, spread, random, fragmentation (default), topology, load, or a mix")
	cmd.Flags().StringSliceVar(&cfg.Modes, "mode", cfg.Modes, "ways to ask for cards that are served: gpushare, qgpu, pgpu; default all")
	cmd.Flags().StringVar(&cfg.Extender.BindAddress, "address", cfg.Extender.BindAddress, "where kube-scheduler is answered; its port also from $PORT")
}

// oldFlags: long flags were written with one dash, and --kubeconfig was -kubeconf.
func oldFlags(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if len(arg) > 2 && arg[0] == '-' && arg[1] != '-' {
			arg = "-" + arg
		}
		if name, value, given := strings.Cut(arg, "="); name == "--kubeconf" {
			arg = "--kubeconfig"
			if given {
				arg += "=" + value
			}
		}
		out[i] = arg
	}
	return out
}

func run(ctx context.Context, env program.Env, cfg *v1alpha1.GPUSchedulerConfiguration) error {
	identity := extender.Identity(advertised(cfg.Extender))
	s, err := service.New(ctx, env, cfg, identity)
	if err != nil {
		return err
	}
	proxy := &extender.LeaderProxy{
		Leads: s.Shell.Leads, Reader: s.Direct, Self: identity,
		Lease: client.ObjectKey{Namespace: cfg.LeaderElection.Namespace, Name: env.LeaseName(cfg.LeaderElection)},
		Local: extender.NewHandler(s.Shell, extender.NewMetrics(metrics.Registry), env.Log.WithName("extender")),
	}
	server := &extender.Server{Address: cfg.Extender.BindAddress, Handler: proxy, Log: env.Log.WithName("extender")}
	if cfg.Extender.TLS {
		if server.TLS, proxy.TLS, err = mutualTLS(ctx, s, env, cfg); err != nil {
			return err
		}
	} else {
		env.Log.Info("the extender answers anyone who reaches its address; set extender.tls", "address", cfg.Extender.BindAddress)
	}
	if err := s.Manager.Add(server); err != nil {
		return err
	}
	return s.Manager.Start(ctx)
}

// advertised is where other replicas find this one.
func advertised(cfg v1alpha1.Extender) string {
	if cfg.AdvertiseAddress != "" {
		return cfg.AdvertiseAddress
	}
	if ip := os.Getenv("POD_IP"); ip != "" {
		if _, port, err := net.SplitHostPort(cfg.BindAddress); err == nil {
			return net.JoinHostPort(ip, port)
		}
	}
	return cfg.BindAddress
}

// mutualTLS is how the extender is served, and how other replicas are asked.
func mutualTLS(ctx context.Context, s *service.Service, env program.Env, cfg *v1alpha1.GPUSchedulerConfiguration) (server, proxy *tls.Config, err error) {
	name := ""
	if len(cfg.Webhook.DNSNames) > 0 {
		name = cfg.Webhook.DNSNames[0]
	}
	if cfg.Extender.CertDir != "" {
		return givenTLS(s.Manager, cfg.Extender.CertDir, name)
	}
	key := client.ObjectKey{Namespace: cfg.LeaderElection.Namespace, Name: cfg.Extender.SecretName}
	m, err := certs.EnsureMutual(ctx, s.Direct, env.Log.WithName("certs"), key, env.Name, cfg.Webhook.DNSNames)
	if err != nil {
		return nil, nil, fmt.Errorf("the extender's certificates: %w", err)
	}
	if server, err = m.Server(); err != nil {
		return nil, nil, err
	}
	proxy, err = m.Client(name)
	return server, proxy, err
}

// givenTLS takes certificates that someone else makes, and new ones as they come. Who signs them is read once.
func givenTLS(mgr manager.Manager, dir, name string) (server, proxy *tls.Config, err error) {
	watcher, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, nil, err
	}
	if err := mgr.Add(watcher); err != nil {
		return nil, nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, nil, fmt.Errorf("%s/ca.crt has no certificate", dir)
	}
	server = &tls.Config{
		GetCertificate: watcher.GetCertificate, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}
	proxy = &tls.Config{
		RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return watcher.GetCertificate(nil) },
	}
	return server, proxy, nil
}
