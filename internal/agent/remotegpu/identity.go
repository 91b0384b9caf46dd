package remotegpu

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"
)

// Identity signs what an agent proves itself with. Its key is in memory alone: an agent that starts again has another
// one, and its node says so.
type Identity struct {
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
}

const (
	// authorityLife is longer than an agent runs.
	authorityLife = 10 * 365 * 24 * time.Hour
	// certificateLife: a connection has one of its own, and outlives it.
	certificateLife = time.Hour
	// clocksDiffer by no more than this.
	clocksDiffer = 10 * time.Minute
	// claimDomain stands behind a claim's UID in the names of certificates.
	claimDomain = ".claim.elasticgpu.io"
)

// claimUID is what a claim's UID can be: a part of a name.
var claimUID = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func nameOf(claim string) (string, error) {
	if !claimUID.MatchString(claim) {
		return "", fmt.Errorf("%.64q is the UID of no claim", claim)
	}
	return claim + claimDomain, nil
}

func claimOf(name string) (string, bool) {
	claim, ours := strings.CutSuffix(name, claimDomain)
	return claim, ours && claimUID.MatchString(claim)
}

// NewIdentity of the agent of a node.
func NewIdentity(node string) (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := template("elastic-gpu-agent of "+node, authorityLife)
	ca.IsCA, ca.BasicConstraintsValid, ca.MaxPathLenZero, ca.KeyUsage = true, true, true, x509.KeyUsageCertSign
	ca.PermittedDNSDomainsCritical, ca.PermittedDNSDomains = true, []string{claimDomain[1:]}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return nil, err
	}
	authority, err := x509.ParseCertificate(der)
	return &Identity{authority, key}, err
}

// Authority is what others know the agent by, in DER. It is no secret.
func (i *Identity) Authority() []byte { return i.authority.Raw }

func template(name string, life time.Duration) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system has no randomness
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{"elastic"}},
		NotBefore: now.Add(-clocksDiffer), NotAfter: now.Add(life),
	}
}

// certificate for one connection of a claim.
func (i *Identity) certificate(name string, usage x509.ExtKeyUsage) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf := template(name, certificateLife)
	leaf.DNSNames, leaf.KeyUsage, leaf.ExtKeyUsage = []string{name}, x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{usage}
	der, err := x509.CreateCertificate(rand.Reader, leaf, i.authority, key.Public(), i.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Pool of the agents that may be at the other end, each by its authority.
func Pool(authorities ...[]byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for _, der := range authorities {
		authority, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("what a node says of its agent: %w", err)
		}
		pool.AddCert(authority)
	}
	return pool, nil
}

// dialer is the side of the pod's node.
func (i *Identity) dialer(claim string, peers *x509.CertPool) (*tls.Config, error) {
	name, err := nameOf(claim)
	if err != nil {
		return nil, err
	}
	own, err := i.certificate(name, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{own}, RootCAs: peers, ServerName: name,
		MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true,
	}, nil
}

// answerer is the side of the card's node, for who names the claim.
func (i *Identity) answerer(claim string, peers *x509.CertPool) (*tls.Config, error) {
	name, err := nameOf(claim)
	if err != nil {
		return nil, err
	}
	own, err := i.certificate(name, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{own}, ClientCAs: peers, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true,
		SessionTicketsDisabled: true, // each connection is looked at
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("no certificate")
			}
			return s.PeerCertificates[0].VerifyHostname(name) // of this claim, and not of another one of the same node
		},
	}, nil
}
