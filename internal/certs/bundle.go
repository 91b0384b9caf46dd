package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// lifetime of a certificate; rotation.go says when it is renewed.
const lifetime = 365 * 24 * time.Hour

// Bundle is a serving certificate with what verifies it, all in PEM.
type Bundle struct {
	Certificate, Key []byte
	// CA is what clients trust: the CA of the certificate, and before it in
	// time the one that the previous certificate had.
	CA []byte
}

// Make creates a certificate for the names (DNS names or addresses), signed by
// a CA made for it alone.
func Make(names []string, now time.Time) (Bundle, error) {
	ca, err := newAuthority("elastic-queue webhooks CA", now, lifetime)
	if err != nil {
		return Bundle{}, err
	}
	certificate, key, err := ca.issue("elastic-queue webhooks", x509.ExtKeyUsageServerAuth, names, now, lifetime)
	if err != nil {
		return Bundle{}, err
	}
	return Bundle{Certificate: certificate, Key: key, CA: ca.pem}, nil
}

// authority signs certificates. Its key is in memory alone, and forgotten with it.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(name string, now time.Time, life time.Duration) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := template(name, now, life)
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &authority{ca, key, pemOf("CERTIFICATE", der)}, nil
}

// issue a certificate and its key, in PEM.
func (a *authority) issue(name string, usage x509.ExtKeyUsage, names []string, now time.Time, life time.Duration) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	leaf := template(name, now, life)
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pemOf("CERTIFICATE", der), pemOf("PRIVATE KEY", keyDER), nil
}

func template(name string, now time.Time, life time.Duration) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system has no randomness
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: []string{"elastic"}},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(life),
	}
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Check says why the bundle cannot be served for these names, or nil.
func (b Bundle) Check(names []string, now time.Time) error {
	pair, err := tls.X509KeyPair(b.Certificate, b.Key)
	if err != nil {
		return fmt.Errorf("the certificate is unusable: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.CA)
	for _, name := range names {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now})
		if err != nil {
			return err
		}
	}
	if now.After(pair.Leaf.NotAfter.Add(-renewBefore)) {
		return fmt.Errorf("the certificate ends at %s", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// renew makes a new bundle that old clients go on trusting.
func (b Bundle) renew(names []string, now time.Time) (Bundle, error) {
	next, err := Make(names, now)
	if err != nil {
		return Bundle{}, err
	}
	if block, _ := pem.Decode(b.CA); block != nil {
		next.CA = append(slices.Clone(next.CA), pem.EncodeToMemory(block)...)
	}
	return next, nil
}
