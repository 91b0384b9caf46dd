package certs

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
)

func TestTLS(t *testing.T) {
	for name, tc := range map[string]struct {
		options *kueueconfig.TLSOptions
		want    *tls.Config
		err     string
	}{
		"nothing said": {want: &tls.Config{MinVersion: tls.VersionTLS12}},
		"all said": {
			options: &kueueconfig.TLSOptions{MinVersion: "VersionTLS13", CipherSuites: []string{"TLS_AES_128_GCM_SHA256"}, CurvePreferences: []int32{int32(tls.X25519)}},
			want:    &tls.Config{MinVersion: tls.VersionTLS13, CipherSuites: []uint16{tls.TLS_AES_128_GCM_SHA256}, CurvePreferences: []tls.CurveID{tls.X25519}},
		},
		"too old":        {options: &kueueconfig.TLSOptions{MinVersion: "VersionTLS11"}, err: "tls.minVersion"},
		"no such cipher": {options: &kueueconfig.TLSOptions{CipherSuites: []string{"ROT13"}}, err: "tls.cipherSuites"},
		"no such curve":  {options: &kueueconfig.TLSOptions{CurvePreferences: []int32{99}}, err: "tls.curvePreferences"},
	} {
		t.Run(name, func(t *testing.T) {
			limit, err := TLS(tc.options)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := tls.Config{}
			limit(&got)
			if got.MinVersion != tc.want.MinVersion || len(got.CipherSuites) != len(tc.want.CipherSuites) || len(got.CurvePreferences) != len(tc.want.CurvePreferences) {
				t.Errorf("got %+v", &got)
			}
		})
	}
}

// Where someone else manages the certificate, its files are only looked at.
func TestGivenCertificate(t *testing.T) {
	dir := t.TempDir()
	rotator := &Rotator{Dir: dir, Given: true}
	if err := rotator.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v: it must say where the files are wanted", err)
	}
	bundle, err := Make([]string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": bundle.Certificate, "tls.key": bundle.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := rotator.Ensure(t.Context()); err != nil {
		t.Error(err)
	}
}
