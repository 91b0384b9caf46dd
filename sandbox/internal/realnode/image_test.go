package realnode

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// parts of a tar, and the order they come in.
func parts(t *testing.T, data []byte) (map[string][]byte, []string) {
	t.Helper()
	content, order := map[string][]byte{}, []string{}
	for in := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := in.Next()
		if err == io.EOF {
			return content, order
		}
		if err != nil {
			t.Fatal(err)
		}
		if content[header.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
		order = append(order, header.Name)
	}
}

// An image has its files with their folders before them, and says what it runs and what its layer is.
func TestImageOfFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("code"), 0o600); err != nil {
		t.Fatal(err)
	}
	var image bytes.Buffer
	made := &Image{
		Name: "registry.local/x:1", Files: map[string]string{"/usr/bin/x": file, "/y": file},
		Links: map[string]string{"/bin": "usr/bin"}, Command: []string{"/usr/bin/x"},
	}
	if err := made.Write(&image); err != nil {
		t.Fatal(err)
	}
	outer, _ := parts(t, image.Bytes())
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(outer["manifest.json"], &manifest); err != nil || manifest[0].RepoTags[0] != "registry.local/x:1" {
		t.Fatalf("%+v %v", manifest, err)
	}
	layer := outer[manifest[0].Layers[0]]
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(outer[manifest[0].Config], &config); err != nil || config.Config.Entrypoint[0] != "/usr/bin/x" {
		t.Fatalf("%+v %v", config, err)
	}
	if sum := sha256.Sum256(layer); config.RootFS.DiffIDs[0] != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("the layer is not the one that is named")
	}
	inner, order := parts(t, layer)
	if string(inner["usr/bin/x"]) != "code" || string(inner["y"]) != "code" {
		t.Errorf("files %v", order)
	}
	if want := []string{"usr/", "usr/bin/", "usr/bin/x", "y", "bin", "tmp/"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}
