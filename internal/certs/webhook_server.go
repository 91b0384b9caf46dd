package certs

import (
	"cmp"
	"crypto/tls"
	"fmt"

	"github.com/go-logr/logr"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

// New makes the Rotator of a program's certificate. The Secret is in the
// namespace given, unless the configuration names one.
func New(c client.Client, log logr.Logger, program string, cfg v1alpha1.Webhook, namespace string) *Rotator {
	name := program + "-webhooks"
	return &Rotator{
		Client: c, Log: log.WithName("certs"), Name: name,
		Secret: cmp.Or(cfg.SecretName, name), Namespace: cmp.Or(cfg.Namespace, namespace),
		Dir: cfg.CertDir, Names: cfg.DNSNames, Given: !ptr.Deref(cfg.ManageCertificate, true),
	}
}

// Server makes the server of a program's webhooks, and of whatever else it serves under the same
// certificate.
func Server(cfg v1alpha1.Webhook, more ...func(*tls.Config)) (webhook.Server, error) {
	limit, err := TLS(cfg.TLS)
	if err != nil {
		return nil, err
	}
	return webhook.NewServer(webhook.Options{
		Host: cfg.Host, Port: cfg.Port, CertDir: cfg.CertDir, TLSOpts: append([]func(*tls.Config){limit}, more...),
	}), nil
}

// TLS limits a server to the versions, ciphers and curves of the options; nil
// leaves Go's, from TLS 1.2 on.
func TLS(options *kueueconfig.TLSOptions) (func(*tls.Config), error) {
	if options == nil {
		options = &kueueconfig.TLSOptions{}
	}
	version, err := cliflag.TLSVersion(cmp.Or(options.MinVersion, "VersionTLS12"))
	if err != nil || version < tls.VersionTLS12 {
		return nil, fmt.Errorf("tls.minVersion: %q is none of VersionTLS12, VersionTLS13", options.MinVersion)
	}
	ciphers, err := cliflag.TLSCipherSuites(options.CipherSuites)
	if err != nil {
		return nil, fmt.Errorf("tls.cipherSuites: %w; there are %v", err, cliflag.PreferredTLSCipherNames())
	}
	curves, err := cliflag.TLSCurvePreferences(options.CurvePreferences)
	if err != nil {
		return nil, fmt.Errorf("tls.curvePreferences: %w", err)
	}
	return func(c *tls.Config) {
		c.MinVersion = version
		if len(ciphers) > 0 {
			c.CipherSuites = ciphers
		}
		if len(curves) > 0 {
			c.CurvePreferences = curves
		}
	}, nil
}
