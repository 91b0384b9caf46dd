//go:build linux

package images

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// signingKey is one to throw away, and its file.
func signingKey(t *testing.T) (ed25519.PublicKey, string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return public, file
}

// released checks what "make release" has written beside the images, as one does who has downloaded it.
func released(t *testing.T, dist string, key ed25519.PublicKey, repository, version string) {
	t.Helper()
	read := func(file string) []byte {
		data, err := os.ReadFile(filepath.Join(dist, file))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if !ed25519.Verify(key, read("SHA256SUMS"), read("SHA256SUMS.sig")) {
		t.Error("the signature is not of the checksums")
	}
	check := exec.Command("sha256sum", "--strict", "-c", "SHA256SUMS")
	check.Dir = dist
	out, err := check.CombinedOutput()
	archive := "elastic-" + version + "-linux-" + runtime.GOARCH
	list := "elastic-" + version + "-images.txt"
	for _, file := range []string{archive + ".tar.gz", archive + ".spdx.json", list} {
		if err != nil || !strings.Contains(string(out), file+": OK\n") {
			t.Errorf("%s is not what was signed: %v\n%s", file, err, out)
		}
	}
	images := strings.Fields(string(read(list)))
	if len(images) != len(programs) {
		t.Errorf("%d images are listed: %q", len(images), images)
	}
	for program := range programs {
		at := slices.IndexFunc(images, func(line string) bool { return strings.HasPrefix(line, repository+"/"+program+":"+version+"@sha256:") })
		if at < 0 {
			t.Errorf("no image of %s in %q", program, images)
			continue
		}
		// A registry asked for a digest gives that or nothing.
		ref, err := name.NewDigest(images[at])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := remote.Head(ref); err != nil {
			t.Errorf("what is listed of %s was not pushed: %v", program, err)
		}
	}

	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", filepath.Join(dist, archive+".tar.gz"), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for program := range programs {
		starts(t, filepath.Join(dir, archive, program), program, version)
	}
	starts(t, filepath.Join(dir, archive, "elastic"), "elastic", version)
	isLibrary(t, filepath.Join(dir, archive, "libelasticgpu.so"))
}

// starts checks that a program runs on another machine than this, and is of a version.
func starts(t *testing.T, path, program, version string) {
	t.Helper()
	linked(t, path, program == "elastic-gpu-agent")
	said, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil || !says(string(said), program, version) {
		t.Errorf("%s from the archive says %q, %v", program, said, err)
	}
}

// says is whether a program said that it is of a version, whatever the commit; a build without a version says -dev.
func says(said, program, version string) bool {
	number, found := strings.CutPrefix(strings.TrimSpace(said), program+" version ")
	number, _, _ = strings.Cut(number, "+")
	return found && number == version
}
