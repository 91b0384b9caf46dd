// Package pki makes the certificates and keys of one sandbox.
//
// Only what others hold on to stays between runs: the two authorities and the
// key that signs service account tokens. Every other certificate is issued anew
// at each start, so none of them can be found expired.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
)

// KubeletClientName is who the API server is to a kubelet.
const KubeletClientName = "kube-apiserver-kubelet-client"

// Pair names the files of one certificate and its key.
type Pair struct{ Cert, Key string }

// Files names everything the control plane reads.
type Files struct {
	CA      Pair // signs servers and clients
	ProxyCA Pair // signs the aggregator, so that only it may speak for others

	APIServer     Pair
	Kubelet       Pair // serving certificate of the simulated kubelets
	KubeletClient Pair // the API server when it calls a kubelet
	ProxyClient   Pair // the API server when it calls an aggregated API

	Admin             Pair
	ControllerManager Pair
	Scheduler         Pair
	Simulator         Pair // what plays simulated nodes and pods

	ServiceAccountKey string
}

// Ensure writes all files below dir and returns their names. ips are the
// addresses servers are reached at.
func Ensure(dir string, ips []net.IP, now time.Time) (Files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Files{}, err
	}
	pair := func(name string) Pair {
		return Pair{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}
	}
	f := Files{
		CA: pair("ca"), ProxyCA: pair("front-proxy-ca"),
		APIServer: pair("apiserver"), Kubelet: pair("kubelet"), KubeletClient: pair("apiserver-kubelet-client"),
		ProxyClient: pair("front-proxy-client"), Admin: pair("admin"), ControllerManager: pair("controller-manager"),
		Scheduler: pair("scheduler"), Simulator: pair("simulator"),
		ServiceAccountKey: filepath.Join(dir, "sa.key"),
	}
	ca, err := ensureAuthority(f.CA, "elastic-sandbox-ca", now)
	if err != nil {
		return Files{}, err
	}
	proxyCA, err := ensureAuthority(f.ProxyCA, "elastic-sandbox-front-proxy-ca", now)
	if err != nil {
		return Files{}, err
	}
	if err := ensureKey(f.ServiceAccountKey); err != nil {
		return Files{}, err
	}
	server := func(names ...string) x509.Certificate {
		return x509.Certificate{
			Subject:     pkix.Name{CommonName: names[0]},
			DNSNames:    names,
			IPAddresses: ips,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
	}
	client := func(user string, groups ...string) x509.Certificate {
		return x509.Certificate{
			Subject:     pkix.Name{CommonName: user, Organization: groups},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
	}
	for _, leaf := range []struct {
		by   *authority
		to   Pair
		what x509.Certificate
	}{
		{ca, f.APIServer, server("kube-apiserver", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")},
		{ca, f.Kubelet, server("kubelet", "localhost")},
		{ca, f.KubeletClient, client(KubeletClientName, "system:masters")},
		{proxyCA, f.ProxyClient, client("front-proxy-client")},
		{ca, f.Admin, client("sandbox-admin", "system:masters")},
		{ca, f.ControllerManager, client("system:kube-controller-manager")},
		{ca, f.Scheduler, client("system:kube-scheduler")},
		{ca, f.Simulator, client("sandbox-simulator", "system:masters")},
	} {
		if err := leaf.by.issue(leaf.to, leaf.what, now); err != nil {
			return Files{}, err
		}
	}
	return f, nil
}

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// ensureAuthority loads an authority that will outlive the leaves it issues
// today, or makes a new one.
func ensureAuthority(p Pair, name string, now time.Time) (*authority, error) {
	if a, err := loadAuthority(p); err == nil && now.Add(leafLife).Before(a.cert.NotAfter) && now.After(a.cert.NotBefore) {
		return a, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	cert, err := sign(p, template, nil, key, key)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	return &authority{cert: cert, key: key}, nil
}

func loadAuthority(p Pair) (*authority, error) {
	certDER, err := readPEM(p.Cert)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, err
	}
	key, err := readKey(p.Key)
	if err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("certificate and key do not belong together")
	}
	return &authority{cert: cert, key: key}, nil
}

func (a *authority) issue(to Pair, template x509.Certificate, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.NotBefore = now.Add(-time.Hour)
	template.NotAfter = now.Add(leafLife)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	if _, err := sign(to, template, a.cert, key, a.key); err != nil {
		return fmt.Errorf("issue %s: %w", template.Subject.CommonName, err)
	}
	return nil
}

// sign writes the certificate and its key; a nil parent means self-signed.
func sign(to Pair, template x509.Certificate, parent *x509.Certificate, key *ecdsa.PrivateKey, by crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	if parent == nil {
		parent = &template
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), by)
	if err != nil {
		return nil, err
	}
	if err := writeKey(to.Key, key); err != nil {
		return nil, err
	}
	if err := writePEM(to.Cert, "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func ensureKey(path string) error {
	_, err := readKey(path)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errUnreadable) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return writeKey(path, key)
}

// errUnreadable marks a file that exists but holds nothing usable, as a crash
// in the middle of a write leaves it.
var errUnreadable = errors.New("not a readable key or certificate")

func readKey(path string) (*ecdsa.PrivateKey, error) {
	der, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, errUnreadable, err)
	}
	return key, nil
}

func readPEM(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s: %w", path, errUnreadable)
	}
	return block.Bytes, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
