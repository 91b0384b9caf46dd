//go:build linux

package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// nonroot is the user of the base images that releases have.
const nonroot = "65532"

// baseImage has what the base of a release has and a program's start needs:
// users, and a C library, which here is this machine's.
func baseImage(t *testing.T, withC bool) v1.Image {
	t.Helper()
	var data bytes.Buffer
	archive := tar.NewWriter(&data)
	add := func(path string, mode int64, content []byte) {
		header := &tar.Header{Name: path, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	add("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"))
	add("etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n"))
	if withC {
		for _, library := range libraries(t) {
			content, err := os.ReadFile(library)
			if err != nil {
				t.Fatal(err)
			}
			add(strings.TrimPrefix(library, "/"), 0o755, content)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, Config: v1.Config{User: nonroot, WorkingDir: "/"}, RootFS: rootFS(t, image),
	})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func rootFS(t *testing.T, image v1.Image) v1.RootFS {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return config.RootFS
}

// libraries are what a program linked with the C library opens on this machine.
func libraries(t *testing.T) []string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "main.c")
	program := strings.TrimSuffix(source, ".c")
	if err := os.WriteFile(source, []byte("#include <dlfcn.h>\nint main(void) { return dlopen(0, RTLD_NOW) == 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-o", program, source, "-ldl", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, field := range strings.Fields(string(out)) {
		if strings.HasPrefix(field, "/") {
			paths = append(paths, field)
		}
	}
	if len(paths) < 2 {
		t.Fatalf("a loader and a C library are expected: %s", out)
	}
	return paths
}

// unpack puts an image's files into a folder.
func unpack(t *testing.T, image v1.Image) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }()
	for archive := tar.NewReader(files); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, filepath.Join("/", header.Name))
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), writeFile(path, archive, header))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func writeFile(path string, content io.Reader, header *tar.Header) error {
	if header.Typeflag == tar.TypeSymlink {
		return os.Symlink(header.Linkname, path)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, fs.FileMode(header.Mode).Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// run a program with an image's files around it and as its user; a test that is
// not root runs it among the machine's files.
func run(t *testing.T, root, entry string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, entry), args...)
	if os.Getuid() == 0 {
		cmd = exec.Command(entry, args...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	}
	cmd.Env = []string{"PATH=/ko-app"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v: %s", entry, err, out)
	}
	return string(out)
}
