package install

import (
	"archive/zip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/elastic-ai/elastic"

func TestInstall(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	proxy, bin := t.TempDir(), t.TempDir()
	files := tree(t, root)
	// What is packed has a version of its own: the module cache never reads the same one again.
	version := "v0.0.0-test." + sum(t, root, files)
	t.Cleanup(func() { forget(t, version) })
	pack(t, proxy, root, "", version, files)
	pack(t, proxy, root, "sandbox", version, files)

	install(t, proxy, bin, module+"/cmd/...@"+version)
	install(t, proxy, bin, module+"/sandbox/cmd/elastic-sandbox@"+version)
	for program, want := range map[string]string{
		"elastic --version":            "elastic version " + version + "\n",
		"elastic-queue --version":      "elastic-queue version " + version + "\n",
		"elastic-web --version":        "elastic-web version " + version + "\n",
		"elastic-gpu-agent --help":     "elastic-gpu-agent",
		"elastic-gpu-scheduler --help": "elastic-gpu-scheduler",
		"elastic-sandbox version":      "kubernetes v1.",
	} {
		name, argument, _ := strings.Cut(program, " ")
		if said, err := exec.Command(filepath.Join(bin, name), argument).CombinedOutput(); err != nil || !strings.Contains(string(said), want) {
			t.Errorf("%s: %v\n%s", program, err, said)
		}
	}
}

// install as a user does, with what make has compiled.
func install(t *testing.T, proxy, bin, what string) {
	t.Helper()
	cmd := exec.Command("go", "install", what)
	cmd.Dir = bin
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOPROXY=file://"+filepath.ToSlash(proxy), "GOSUMDB=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go install %s: %v\n%s", what, err, out)
	}
}

// tree is what a clone with this tree's edits has.
func tree(t *testing.T, root string) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(files)
	return slices.DeleteFunc(files, func(file string) bool {
		info, err := os.Lstat(filepath.Join(root, file))
		return err != nil || !info.Mode().IsRegular() // deleted, or a link, which modules do not have
	})
}

// sum is short and the files' own.
func sum(t *testing.T, root string, files []string) string {
	t.Helper()
	hash := sha256.New()
	for _, name := range files {
		fmt.Fprintln(hash, name)
		copyFile(t, hash, filepath.Join(root, name))
	}
	return fmt.Sprintf("x%x", hash.Sum(nil)[:6]) // a number must not begin with 0
}

// pack puts the module of a folder where a proxy would have it, without the modules below it.
func pack(t *testing.T, proxy, root, folder, version string, files []string) {
	t.Helper()
	name := path.Join(module, folder)
	dir := filepath.Join(proxy, name, "@v")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	archive, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	zipped := zip.NewWriter(archive)
	for _, file := range files {
		if moduleOf(files, file) != folder {
			continue
		}
		to, err := zipped.Create(name + "@" + version + "/" + strings.TrimPrefix(strings.TrimPrefix(file, folder), "/"))
		if err != nil {
			t.Fatal(err)
		}
		copyFile(t, to, filepath.Join(root, file))
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{version + ".mod": string(mod), version + ".info": fmt.Sprintf(`{"Version": %q}`, version), "list": version + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// moduleOf is the folder of the module that a file is in, empty for the whole tree's.
func moduleOf(files []string, file string) string {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if _, found := slices.BinarySearch(files, dir+"/go.mod"); found {
			return dir
		}
	}
	return ""
}

func copyFile(t *testing.T, to io.Writer, name string) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := io.Copy(to, file); err != nil {
		t.Fatal(err)
	}
}

// forget takes a version out of the module cache, which has to be this machine's: what is compiled of all else is found by
// the folder that it lies in.
func forget(t *testing.T, version string) {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache := strings.TrimSpace(string(out))
	for _, name := range []string{module, module + "/sandbox"} {
		dir := filepath.Join(cache, name+"@"+version)
		_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				err = os.Chmod(path, 0o700) //nolint:gosec // the cache is read-only
			}
			return err
		})
		downloads, err := filepath.Glob(filepath.Join(cache, "cache/download", name, "@v", version+".*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range append(downloads, dir) {
			if err := os.RemoveAll(path); err != nil {
				t.Error(err)
			}
		}
	}
}
