// Command release packs programs: an archive for each folder of them, with an SPDX list of what is compiled into each
// program, checksums of the archives, and a signature of the checksums where a key is given.
//
//	release -version v0.3.0 -out dist [-key FILE] linux-amd64=bin/linux-amd64 darwin-arm64=bin/others/darwin-arm64
//
// Who has the public key checks SHA256SUMS.sig with "openssl dgst -verify" (ECDSA) or "openssl pkeyutl -verify" (Ed25519).
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	version := flag.String("version", "", "of the release")
	out := flag.String("out", "dist", "folder for the archives")
	key := flag.String("key", "", "PEM file of a private key, Ed25519 or ECDSA; empty signs nothing")
	flag.Parse()
	if err := release(*version, *out, *key, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(version, out, key string, folders []string) error {
	if version == "" || len(folders) == 0 {
		return fmt.Errorf("it takes a -version and PLATFORM=FOLDER")
	}
	if err := os.MkdirAll(out, 0o755); err != nil { //nolint:gosec // for others to read
		return err
	}
	var files []string
	for _, folder := range folders {
		platform, dir, ok := strings.Cut(folder, "=")
		if !ok {
			return fmt.Errorf("%q: write PLATFORM=FOLDER", folder)
		}
		name := "elastic-" + version + "-" + platform
		programs, err := programsIn(dir)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(out, name+".spdx.json"), func(w io.Writer) error { return writeSBOM(w, name, programs) }); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(out, name+".tar.gz"), func(w io.Writer) error { return writeArchive(w, name, programs) }); err != nil {
			return err
		}
		files = append(files, name+".spdx.json", name+".tar.gz")
	}
	sums, err := checksums(out, files)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "SHA256SUMS"), sums, 0o644); err != nil { //nolint:gosec // for others to read
		return err
	}
	if key == "" {
		return nil
	}
	signature, err := sign(key, sums)
	if err != nil {
		return fmt.Errorf("signing with %s: %w", key, err)
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS.sig"), signature, 0o644) //nolint:gosec // for others to read
}

// programsIn are the files of a folder, what a link leads to included.
func programsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var programs []string
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			programs = append(programs, path)
		}
	}
	if len(programs) == 0 {
		return nil, fmt.Errorf("%s is empty: build first", dir)
	}
	return programs, nil
}

// checksums as "sha256sum -c" reads them.
func checksums(dir string, names []string) ([]byte, error) {
	slices.Sort(names)
	var sums []byte
	for _, name := range names {
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, file)
		_ = file.Close()
		if err != nil {
			return nil, err
		}
		sums = fmt.Appendf(sums, "%x  %s\n", hash.Sum(nil), name)
	}
	return sums, nil
}

func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
