package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"path/filepath"
	"time"
)

// ForNode issues what the kubelet of a real node needs, into the folder to: who it is to the API
// server, and what it serves with at its address. dir holds the sandbox's files.
func ForNode(dir, to, name string, ip net.IP, now time.Time) (ca string, client, server Pair, err error) {
	authority := Pair{Cert: filepath.Join(dir, "ca.crt"), Key: filepath.Join(dir, "ca.key")}
	by, err := loadAuthority(authority)
	if err != nil {
		return "", client, server, err
	}
	pair := func(name string) Pair {
		return Pair{Cert: filepath.Join(to, name+".crt"), Key: filepath.Join(to, name+".key")}
	}
	client, server = pair("node"), pair("kubelet")
	if err := by.issue(client, x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, now); err != nil {
		return "", client, server, err
	}
	return authority.Cert, client, server, by.issue(server, x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{ip},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, now)
}
