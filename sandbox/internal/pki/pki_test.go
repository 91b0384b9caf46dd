package pki

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

var loopback = []net.IP{net.IPv4(127, 0, 0, 1)}

func ensure(t *testing.T, dir string, now time.Time) Files {
	t.Helper()
	f, err := Ensure(dir, loopback, now)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func load(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	der, err := readPEM(path)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func verify(t *testing.T, ca, leaf string, usage x509.ExtKeyUsage, host string, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(load(t, ca))
	_, err := load(t, leaf).Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}, DNSName: host, CurrentTime: now})
	return err
}

func TestEnsure(t *testing.T) {
	now := time.Now()
	f := ensure(t, t.TempDir(), now)
	for _, server := range []Pair{f.APIServer, f.Kubelet} {
		for _, host := range []string{"127.0.0.1", "localhost"} {
			if err := verify(t, f.CA.Cert, server.Cert, x509.ExtKeyUsageServerAuth, host, now); err != nil {
				t.Errorf("%s as %s: %v", server.Cert, host, err)
			}
		}
	}
	for user, pair := range map[string]Pair{
		"sandbox-admin": f.Admin, "system:kube-scheduler": f.Scheduler,
		"system:kube-controller-manager": f.ControllerManager, KubeletClientName: f.KubeletClient,
	} {
		if err := verify(t, f.CA.Cert, pair.Cert, x509.ExtKeyUsageClientAuth, "", now); err != nil {
			t.Errorf("%s: %v", user, err)
		}
		if got := load(t, pair.Cert).Subject.CommonName; got != user {
			t.Errorf("%s is for %q, want %q", pair.Cert, got, user)
		}
	}
	// A client that may act for others must not be confused with one that acts for itself.
	if err := verify(t, f.CA.Cert, f.ProxyClient.Cert, x509.ExtKeyUsageClientAuth, "", now); err == nil {
		t.Error("the front proxy is vouched for by the cluster's authority")
	}
	if err := verify(t, f.ProxyCA.Cert, f.ProxyClient.Cert, x509.ExtKeyUsageClientAuth, "", now); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Dir(f.CA.Cert))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

// TestEnsureAgain: a second run leaves what others hold and renews the rest.
func TestEnsureAgain(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	f := ensure(t, dir, now)
	ca, sa, admin := read(t, f.CA.Cert), read(t, f.ServiceAccountKey), read(t, f.Admin.Cert)

	later := now.Add(2 * leafLife) // every leaf of the first run has expired
	ensure(t, dir, later)
	if read(t, f.CA.Cert) != ca || read(t, f.ServiceAccountKey) != sa {
		t.Error("the authority or the token key changed")
	}
	if read(t, f.Admin.Cert) == admin {
		t.Error("the admin's certificate was not renewed")
	}
	if err := verify(t, f.CA.Cert, f.APIServer.Cert, x509.ExtKeyUsageServerAuth, "127.0.0.1", later); err != nil {
		t.Error(err)
	}

	muchLater := now.Add(authorityLife) // the authority would not outlive new leaves
	ensure(t, dir, muchLater)
	if read(t, f.CA.Cert) == ca {
		t.Error("an expiring authority was not renewed")
	}
	if err := verify(t, f.CA.Cert, f.APIServer.Cert, x509.ExtKeyUsageServerAuth, "127.0.0.1", muchLater); err != nil {
		t.Error(err)
	}
}

// TestEnsureAfterCrash: half-written files and a key without its certificate are replaced.
func TestEnsureAfterCrash(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	f := ensure(t, dir, now)
	for _, path := range []string{f.CA.Cert, f.ServiceAccountKey} {
		if err := os.WriteFile(path, []byte("-----BEGIN"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := ensure(t, t.TempDir(), now)
	if err := os.Rename(other.ProxyCA.Key, f.ProxyCA.Key); err != nil {
		t.Fatal(err)
	}
	ensure(t, dir, now)
	if err := verify(t, f.CA.Cert, f.Admin.Cert, x509.ExtKeyUsageClientAuth, "", now); err != nil {
		t.Error(err)
	}
	if err := verify(t, f.ProxyCA.Cert, f.ProxyClient.Cert, x509.ExtKeyUsageClientAuth, "", now); err != nil {
		t.Error(err)
	}
	if _, err := readKey(f.ServiceAccountKey); err != nil {
		t.Error(err)
	}
}

func TestWriteKubeconfig(t *testing.T) {
	dir := t.TempDir()
	f := ensure(t, dir, time.Now())
	path := filepath.Join(dir, "kubeconfig")
	for _, server := range []string{"https://127.0.0.1:1", "https://127.0.0.1:2"} {
		if err := WriteKubeconfig(path, server, f.CA.Cert, f.Admin); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		if config.Host != server || string(config.CertData) != read(t, f.Admin.Cert) || config.CertFile != "" {
			t.Errorf("got %+v", config)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
