package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// listImages writes a line REPOSITORY/PROGRAM:VERSION@DIGEST for each image of an OCI layout. That file's checksum is signed
// with the others, and so what a registry gives for a digest is what was released.
func listImages(layout, repository, version string) ([]byte, error) {
	var index struct {
		Manifests []struct{ Digest string }
	}
	if err := readJSON(filepath.Join(layout, "index.json"), &index); err != nil {
		return nil, err
	}
	var lines []string
	for _, image := range index.Manifests {
		program, err := programOf(layout, image.Digest)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", image.Digest, err)
		}
		lines = append(lines, fmt.Sprintf("%s/%s:%s@%s\n", repository, program, version, image.Digest))
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s has no images: run 'make images' first", layout)
	}
	slices.Sort(lines)
	return []byte(strings.Join(lines, "")), nil
}

// programOf is the name of what an image runs.
func programOf(layout, digest string) (string, error) {
	var manifest struct {
		Config struct{ Digest string }
	}
	if err := readJSON(blob(layout, digest), &manifest); err != nil {
		return "", err
	}
	var image struct {
		Config struct{ Entrypoint []string }
	}
	if err := readJSON(blob(layout, manifest.Config.Digest), &image); err != nil {
		return "", err
	}
	if len(image.Config.Entrypoint) != 1 {
		return "", fmt.Errorf("it runs %q, and not one program", image.Config.Entrypoint)
	}
	return path.Base(image.Config.Entrypoint[0]), nil
}

func blob(layout, digest string) string {
	algorithm, sum, _ := strings.Cut(digest, ":")
	return filepath.Join(layout, "blobs", algorithm, sum)
}

func readJSON(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
