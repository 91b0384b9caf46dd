package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func keyFile(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A Go program and a file that is none, packed and signed.
func TestRelease(t *testing.T) {
	bin, out := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"program": read(t, self), "library.so": []byte("C")} {
		if err := os.WriteFile(filepath.Join(bin, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	o := options{version: "v1.2.3", out: out, key: keyFile(t, private), images: layout(t, "/ko-app/web", "/ko-app/queue"), repository: "example.com/elastic", with: []string{"program"}}
	if err := o.release([]string{"linux-amd64=" + bin}); err != nil {
		t.Fatal(err)
	}

	sums := read(t, filepath.Join(out, "SHA256SUMS"))
	if !ed25519.Verify(public, sums, read(t, filepath.Join(out, "SHA256SUMS.sig"))) {
		t.Error("the signature is not of the checksums")
	}
	images := read(t, filepath.Join(out, "elastic-v1.2.3-images.txt"))
	if !regexp.MustCompile(`^example.com/elastic/queue:v1.2.3@sha256:[0-9a-f]{64}\nexample.com/elastic/web:v1.2.3@sha256:[0-9a-f]{64}\n$`).Match(images) {
		t.Errorf("images:\n%s", images)
	}
	check := exec.Command("sha256sum", "-c", "SHA256SUMS")
	check.Dir = out
	if said, err := check.CombinedOutput(); err != nil || strings.Count(string(said), ": OK\n") != 3 {
		t.Errorf("sha256sum: %v\n%s", err, said)
	}
	archive := read(t, filepath.Join(out, "elastic-v1.2.3-linux-amd64.tar.gz"))
	if want := fmt.Sprintf("%x  elastic-v1.2.3-linux-amd64.tar.gz\n", sha256.Sum256(archive)); !strings.Contains(string(sums), want) {
		t.Errorf("%s has not %s", sums, want)
	}
	if got, want := names(t, archive), "elastic-v1.2.3-linux-amd64/library.so elastic-v1.2.3-linux-amd64/program"; got != want {
		t.Errorf("the archive has %s, not %s", got, want)
	}
	var sbom document
	if err := json.Unmarshal(read(t, filepath.Join(out, "elastic-v1.2.3-linux-amd64.spdx.json")), &sbom); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range sbom.Packages {
		found[m.Name] = true
	}
	if !found["program"] || !found["library.so"] || !found["std"] {
		t.Errorf("the list names %v", found)
	}

	// Once more, and it is the same.
	again := t.TempDir()
	o.out, o.key = again, ""
	if err := o.release([]string{"linux-amd64=" + bin}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sums, read(t, filepath.Join(again, "SHA256SUMS"))) {
		t.Error("a second release of the same files has other checksums")
	}
	if _, err := os.Stat(filepath.Join(again, "SHA256SUMS.sig")); err == nil {
		t.Error("without a key there is a signature")
	}
}

func TestSignWithECDSA(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	data := []byte("sums")
	signature, err := sign(keyFile(t, key), data)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(data); !ecdsa.VerifyASN1(&key.PublicKey, sum[:], signature) {
		t.Error("the signature does not verify")
	}
}

func TestReleaseRefuses(t *testing.T) {
	empty := t.TempDir()
	for name, arguments := range map[string][]string{"nothing": nil, "no platform": {empty}, "an empty folder": {"linux-amd64=" + empty}} {
		if err := (options{version: "v1.2.3", out: t.TempDir()}).release(arguments); err == nil {
			t.Errorf("%s must be refused", name)
		}
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "program"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (options{version: "v1.2.3", out: t.TempDir(), with: []string{"program", "agent"}}).release([]string{"linux-amd64=" + bin}); err == nil || !strings.Contains(err.Error(), "has no agent") {
		t.Errorf("a folder without a program that is to be there: %v", err)
	}
	for name, images := range map[string]string{"no layout": empty, "no images": layout(t), "an image that runs two": layout(t, "/init\", \"/program")} {
		o := options{version: "v1.2.3", out: t.TempDir(), images: images, repository: "example.com/elastic"}
		if err := o.release([]string{"linux-amd64=" + bin}); err == nil {
			t.Errorf("%s must be refused", name)
		}
	}
}

// layout has an image for each entry point.
func layout(t *testing.T, entries ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o750); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	blob := func(text string) string {
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		write("blobs/sha256/"+sum, text)
		return fmt.Sprintf(`{"digest": "sha256:%s"}`, sum)
	}
	var images []string
	for _, entry := range entries {
		images = append(images, blob(fmt.Sprintf(`{"config": %s}`, blob(fmt.Sprintf(`{"config": {"Entrypoint": ["%s"]}}`, entry)))))
	}
	write("index.json", fmt.Sprintf(`{"manifests": [%s]}`, strings.Join(images, ", ")))
	return dir
}

func names(t *testing.T, archive []byte) string {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(list, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, header.Name)
	}
}
