package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mutualLifetime is long: the client's part is copied by hand to where kube-scheduler reads it, and
// kube-scheduler reads it once. Deleting the Secret ends it at once.
const mutualLifetime = 10 * 365 * 24 * time.Hour

// Mutual is how a server and its clients know each other, all in PEM: a certificate for each side, and the
// CA that signed just these two.
type Mutual struct {
	CA                           []byte
	ServerCertificate, ServerKey []byte
	ClientCertificate, ClientKey []byte
}

// MakeMutual creates one for a server of these names.
func MakeMutual(program string, names []string, now time.Time) (m Mutual, err error) {
	ca, err := newAuthority(program+" CA", now, mutualLifetime)
	if err != nil {
		return m, err
	}
	m.CA = ca.pem
	if m.ServerCertificate, m.ServerKey, err = ca.issue(program, x509.ExtKeyUsageServerAuth, names, now, mutualLifetime); err != nil {
		return m, err
	}
	m.ClientCertificate, m.ClientKey, err = ca.issue("kube-scheduler", x509.ExtKeyUsageClientAuth, nil, now, mutualLifetime)
	return m, err
}

// Check says why it cannot be used for a server of these names, or nil.
func (m Mutual) Check(names []string, now time.Time) error {
	server := Bundle{Certificate: m.ServerCertificate, Key: m.ServerKey, CA: m.CA}
	if err := server.Check(names, now); err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(m.ClientCertificate, m.ClientKey)
	if err != nil {
		return fmt.Errorf("the client's certificate is unusable: %w", err)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: m.pool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

func (m Mutual) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(m.CA)
	return pool
}

// Server answers those who have the client's certificate.
func (m Mutual) Server() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(m.ServerCertificate, m.ServerKey)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: m.pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}, nil
}

// Client asks a server by one of its names, whatever its address.
func (m Mutual) Client(name string) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(m.ClientCertificate, m.ClientKey)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: m.pool(), ServerName: name, MinVersion: tls.VersionTLS12}, nil
}

// Data of the Secret that holds it.
func (m Mutual) Data() map[string][]byte {
	return map[string][]byte{
		"ca.crt": m.CA, "server.crt": m.ServerCertificate, "server.key": m.ServerKey, "client.crt": m.ClientCertificate, "client.key": m.ClientKey,
	}
}

// MutualOf a Secret's data.
func MutualOf(data map[string][]byte) Mutual {
	return Mutual{
		CA: data["ca.crt"], ServerCertificate: data["server.crt"], ServerKey: data["server.key"],
		ClientCertificate: data["client.crt"], ClientKey: data["client.key"],
	}
}

// EnsureMutual reads it from the Secret that replicas share, and makes it where it is missing or cannot be used.
func EnsureMutual(ctx context.Context, c client.Client, log logr.Logger, key client.ObjectKey, program string, names []string) (Mutual, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := c.Get(ctx, key, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return Mutual{}, fmt.Errorf("secret %s: %w", key, err)
	}
	now := time.Now()
	m := MutualOf(secret.Data)
	why := errors.New("there is none")
	if !missing {
		if why = m.Check(names, now); why == nil {
			return m, nil
		}
	}
	log.Info("making certificates for the extender and for kube-scheduler; kube-scheduler needs the new ones", "secret", key.String(), "why", why.Error())
	if m, err = MakeMutual(program, names, now); err != nil {
		return m, err
	}
	secret.Data = m.Data()
	if missing {
		err = c.Create(ctx, secret)
	} else {
		err = c.Update(ctx, secret)
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return EnsureMutual(ctx, c, log, key, program, names) // another replica was first
	}
	return m, err
}
