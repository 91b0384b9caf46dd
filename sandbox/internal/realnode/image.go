package realnode

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Image is what a container image made here has.
type Image struct {
	Name string
	// Files of this machine by their paths in it, and symbolic links by theirs.
	Files, Links map[string]string
	// Command that it runs.
	Command []string
}

// Write it as "docker save" does: one layer.
func (i *Image) Write(w io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Command, "Env": []string{"PATH=/usr/bin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{i.Name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, part := range []struct {
		name string
		data []byte
	}{{"layer.tar", layer}, {"config.json", config}, {"manifest.json", manifest}} {
		if err := add(out, part.name, 0o644, part.data); err != nil {
			return err
		}
	}
	return out.Close()
}

func (i *Image) layer() ([]byte, error) {
	var data bytes.Buffer
	out := tar.NewWriter(&data)
	made := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		content, err := os.ReadFile(i.Files[name])
		if err != nil {
			return nil, err
		}
		inside := strings.TrimPrefix(path.Clean("/"+name), "/")
		for at, char := range inside {
			if folder := inside[:at]; char == '/' && !made[folder] {
				made[folder] = true
				if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755}); err != nil {
					return nil, err
				}
			}
		}
		if err := add(out, inside, 0o755, content); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Links)) {
		inside := strings.TrimPrefix(path.Clean("/"+name), "/")
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: inside, Linkname: i.Links[name], Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	if !made["tmp"] {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}

func add(out *tar.Writer, name string, mode int64, data []byte) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	if _, err := out.Write(data); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
