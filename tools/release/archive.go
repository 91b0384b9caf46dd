package main

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
)

// writeArchive packs files into one folder. The same files make the same archive: it has no times and no owners.
func writeArchive(w io.Writer, name string, files []string) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	for _, path := range files {
		if err := add(archive, name+"/"+filepath.Base(path), path); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zipped.Close()
}

func add(archive *tar.Writer, name, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: 0o755}); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}
