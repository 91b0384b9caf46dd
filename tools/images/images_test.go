//go:build linux

package images

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const project = "../.."

// programs are the chart's, by the folder of their main package.
var programs = map[string]string{
	"elastic-queue":         "github.com/elastic-ai/elastic/cmd/elastic-queue",
	"elastic-gpu-scheduler": "github.com/elastic-ai/elastic/cmd/elastic-gpu-scheduler",
	"elastic-web":           "github.com/elastic-ai/elastic/cmd/elastic-web",
	"elastic-gpu-agent":     "github.com/elastic-ai/elastic/cmd/elastic-gpu-agent",
	"elastic-scheduler":     "github.com/elastic-ai/elastic/scheduler/cmd/elastic-scheduler",
}

func TestImages(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	configs := fromLoopback(t, host)
	version := chartsVersion(t)
	repository := host + "/elastic"
	key, keyFile := signingKey(t)
	dist := build(t, configs, repository, keyFile)
	t.Run("release", func(t *testing.T) { released(t, dist, key, repository, version) })
	for program, path := range programs {
		t.Run(program, func(t *testing.T) {
			image := pull(t, repository+"/"+program+":"+version)
			config, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			entry := "/ko-app/" + program
			if got := config.Config; !slices.Equal(got.Entrypoint, []string{entry}) || got.User != nonroot {
				t.Errorf("it runs %v as user %q, want %s as %s", got.Entrypoint, got.User, entry, nonroot)
			}
			root := unpack(t, image)
			built, err := buildinfo.ReadFile(filepath.Join(root, entry))
			if err != nil {
				t.Fatal(err)
			}
			if built.Path != path {
				t.Errorf("the program inside is %s, want %s", built.Path, path)
			}
			linked(t, filepath.Join(root, entry), program == "elastic-gpu-agent")
			if library := filepath.Join(root, "var/run/ko/libelasticgpu.so"); program == "elastic-gpu-agent" {
				isLibrary(t, library)
				arbiter := "/var/run/ko/elastic-gpu-arbiter"
				linked(t, filepath.Join(root, arbiter), true)
				if said := run(t, root, arbiter, "--help"); !strings.Contains(said, "usage: elastic-gpu-arbiter") {
					t.Errorf("the arbiter in its own files says %q", said)
				}
			}
			billOfMaterials(t, repository+"/"+program, image, built)
			if said := run(t, root, entry, "--version"); !says(said, program, version) {
				t.Errorf("in its own files it says %q", said)
			}
		})
	}
}

// chartsVersion is the one the chart's images are tagged with.
func chartsVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(project, "deploy/chart/Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\nappVersion: ")
	version, _, _ := strings.Cut(after, "\n")
	if !found || version == "" {
		t.Fatal("the chart has no appVersion")
	}
	return version
}

// Every image that the chart can name is built, and no other.
func TestChartsImages(t *testing.T) {
	found := map[string]bool{}
	for _, values := range []string{"{}", "gpuScheduler: {as: plugin}", "web: {enabled: true}"} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		render := exec.Command("go", "run", ".", "-values", file, "../../deploy/chart")
		render.Dir = "../render"
		out, err := render.Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`(?m)^\s+(?:- )?image: (\S+)/([^/:]+):\S+$`).FindAllStringSubmatch(string(out), -1) {
			if found[match[2]] = true; programs[match[2]] == "" || match[1] != "ghcr.io/elastic-ai" {
				t.Errorf("image %s of the chart is not built", match[0])
			}
		}
	}
	if len(found) != len(programs) {
		t.Errorf("the chart names %v, and %v are built", found, programs)
	}
}

// fromLoopback writes the configurations of ko once more, with base images from
// a registry on loopback, and puts them there.
func fromLoopback(t *testing.T, host string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	pinned := regexp.MustCompile(`gcr\.io/(\S+?):nonroot@sha256:[0-9a-f]{64}`)
	for _, file := range []string{".ko.yaml", "scheduler/.ko.yaml"} {
		text, err := os.ReadFile(filepath.Join(project, file))
		if err != nil {
			t.Fatal(err)
		}
		bases := pinned.FindAllSubmatch(text, -1)
		if len(bases) == 0 || len(bases) != bytes.Count(text, []byte("gcr.io/")) {
			t.Errorf("%s: each base image is named with tag and digest", file)
		}
		for _, base := range bases {
			push(t, fmt.Sprintf("%s/%s:nonroot", host, base[1]), baseImage(t, bytes.Contains(base[1], []byte("distroless/base"))))
		}
		changed := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(changed), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(changed, pinned.ReplaceAll(text, []byte(host+"/$1:nonroot")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// build makes a release, but for the sandbox: Kubernetes, compiled as for a release, takes minutes, and has no version of ours.
func build(t *testing.T, configs, repository, key string) (dist string) {
	t.Helper()
	layout, err := os.MkdirTemp("", "images-") // ko wants a path in lower case
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(layout) })
	dist = t.TempDir()
	cmd := exec.Command("make", "-C", project, "release", "PUSH=true", "KO_CONFIGS="+configs, "IMAGES="+layout, "DIST="+dist, "SIGN_KEY="+key, "WITHOUT_SANDBOX=1")
	cmd.Env = append(os.Environ(), "KO_DOCKER_REPO="+repository, "DOCKER_CONFIG="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make release: %v\n%s", err, out)
	}
	return dist
}

func pull(t *testing.T, reference string) v1.Image {
	t.Helper()
	ref, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func push(t *testing.T, reference string, image v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
}

// linked checks that a program needs no library, or none newer than the base
// image of releases has.
func linked(t *testing.T, path string, dynamically bool) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	interpreted := slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if interpreted != dynamically {
		t.Errorf("linked dynamically: %v, want %v", interpreted, dynamically)
	}
	symbols, err := file.ImportedSymbols()
	if err != nil && dynamically {
		t.Fatal(err)
	}
	for _, symbol := range symbols {
		var minor int
		if _, err := fmt.Sscanf(symbol.Version, "GLIBC_2.%d", &minor); err == nil && minor > debian12 {
			t.Errorf("%s of %s is newer than Debian 12's C library: build it on an older machine", symbol.Name, symbol.Version)
		}
	}
}

// debian12 is the minor version of the C library in that release.
const debian12 = 36

func isLibrary(t *testing.T, path string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal("what containers preload is not in the agent's image: ", err)
	}
	defer func() { _ = file.Close() }()
	if file.Type != elf.ET_DYN {
		t.Errorf("%s is no library but %s", path, file.Type)
	}
}

// billOfMaterials checks that an image's SBOM names every module its program
// is made of.
func billOfMaterials(t *testing.T, repository string, image v1.Image, built *buildinfo.BuildInfo) {
	t.Helper()
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := pull(t, repository+":"+strings.Replace(digest.String(), ":", "-", 1)+".sbom").Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers in the SBOM: %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	var bill struct {
		SPDXVersion string
		Packages    []struct{ Name, VersionInfo string }
	}
	if err := json.NewDecoder(content).Decode(&bill); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(bill.SPDXVersion, "SPDX-2.") {
		t.Errorf("its SBOM is of version %q", bill.SPDXVersion)
	}
	named := map[string]string{}
	for _, p := range bill.Packages {
		named[p.Name] = p.VersionInfo
	}
	if len(built.Deps) < 50 {
		t.Fatalf("%d modules in the program", len(built.Deps))
	}
	for _, module := range built.Deps {
		inside := module.Version
		if other := module.Replace; other != nil && other.Path == module.Path {
			inside = other.Version // one replaced by a folder of this project keeps its own
		}
		if version, ok := named[module.Path]; !ok || version != inside {
			t.Errorf("%s %s is in the program, and the SBOM has %q", module.Path, inside, version)
		}
	}
}
