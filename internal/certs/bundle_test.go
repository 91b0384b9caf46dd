package certs

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestMadeBundleServesItsNames(t *testing.T) {
	names := []string{"webhooks.example.svc", "127.0.0.1"}
	bundle, err := Make(names, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := bundle.Check(names, now); err != nil {
		t.Fatalf("a fresh bundle must pass: %v", err)
	}
	for what, err := range map[string]error{
		"another name":       bundle.Check([]string{"other.example.svc"}, now),
		"near its end":       bundle.Check(names, now.Add(lifetime-renewBefore+time.Hour)),
		"past its end":       bundle.Check(names, now.Add(lifetime+time.Hour)),
		"an empty bundle":    Bundle{}.Check(names, now),
		"a CA not its maker": withCA(bundle, mustMake(t, names).CA).Check(names, now),
	} {
		if err == nil {
			t.Errorf("%s: must be refused", what)
		}
	}
}

func TestRenewedBundleTrustsBoth(t *testing.T) {
	names := []string{"localhost"}
	old := mustMake(t, names)
	next, err := old.renew(names, now)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(next.CA)
	for _, b := range []Bundle{old, next} {
		pair, err := tls.X509KeyPair(b.Certificate, b.Key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "localhost", CurrentTime: now}); err != nil {
			t.Errorf("while replicas move over, both certificates must be trusted: %v", err)
		}
	}
	again, err := next.renew(names, now)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(again.CA), "BEGIN CERTIFICATE"); n != 2 {
		t.Errorf("the bundle holds %d CAs after two renewals, want the newest two", n)
	}
}

func mustMake(t *testing.T, names []string) Bundle {
	t.Helper()
	bundle, err := Make(names, now)
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

func withCA(b Bundle, ca []byte) Bundle {
	b.CA = ca
	return b
}
