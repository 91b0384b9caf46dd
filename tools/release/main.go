// Command release packs programs: an archive for each folder of them, with an SPDX list of what is compiled into each
// program, the digests of images, checksums of all of it, and a signature of the checksums where a key is given.
//
//	release -version v0.3.0 -out dist [-with PROGRAM,...] [-key FILE] [-images LAYOUT -repository NAME] linux-amd64=bin/linux-amd64 darwin-arm64=bin/others/darwin-arm64
//
// Who has the public key checks SHA256SUMS.sig with "openssl dgst -verify" (ECDSA) or "openssl pkeyutl -verify -rawin" (Ed25519).
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

// options of a release.
type options struct {
	version, out, key  string
	images, repository string
	// with names what each folder must have: without a program that "elastic up" starts an archive is of no use.
	with []string
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "of the release")
	flag.StringVar(&o.out, "out", "dist", "folder for the archives")
	flag.StringVar(&o.key, "key", "", "PEM file of a private key, Ed25519 or ECDSA; empty signs nothing")
	flag.StringVar(&o.images, "images", "", "OCI layout with the release's images; empty lists none")
	flag.StringVar(&o.repository, "repository", "", "where the images are pulled from")
	with := flag.String("with", "", "programs that each folder must have, comma between")
	flag.Parse()
	o.with = strings.FieldsFunc(*with, func(r rune) bool { return r == ',' })
	if err := o.release(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (o options) release(folders []string) error {
	if o.version == "" || len(folders) == 0 || (o.images == "") != (o.repository == "") {
		return fmt.Errorf("it takes a -version and PLATFORM=FOLDER, and -images with a -repository")
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil { //nolint:gosec // for others to read
		return err
	}
	var files []string
	for _, folder := range folders {
		written, err := o.pack(folder)
		if err != nil {
			return err
		}
		files = append(files, written...)
	}
	if o.images != "" {
		list, err := listImages(o.images, o.repository, o.version)
		if err != nil {
			return err
		}
		name := "elastic-" + o.version + "-images.txt"
		if err := o.write(name, list); err != nil {
			return err
		}
		files = append(files, name)
	}
	sums, err := checksums(o.out, files)
	if err != nil {
		return err
	}
	if err := o.write("SHA256SUMS", sums); err != nil || o.key == "" {
		return err
	}
	signature, err := sign(o.key, sums)
	if err != nil {
		return fmt.Errorf("signing with %s: %w", o.key, err)
	}
	return o.write("SHA256SUMS.sig", signature)
}

// pack the programs of one platform.
func (o options) pack(folder string) (files []string, err error) {
	platform, dir, ok := strings.Cut(folder, "=")
	if !ok {
		return nil, fmt.Errorf("%q: write PLATFORM=FOLDER", folder)
	}
	name := "elastic-" + o.version + "-" + platform
	programs, err := programsIn(dir)
	if err != nil {
		return nil, err
	}
	for _, want := range o.with {
		if !slices.ContainsFunc(programs, func(path string) bool { return filepath.Base(path) == want }) {
			return nil, fmt.Errorf("%s has no %s, which an archive must have", dir, want)
		}
	}
	if err := writeFile(filepath.Join(o.out, name+".spdx.json"), func(w io.Writer) error { return writeSBOM(w, name, programs) }); err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(o.out, name+".tar.gz"), func(w io.Writer) error { return writeArchive(w, name, programs) }); err != nil {
		return nil, err
	}
	return []string{name + ".spdx.json", name + ".tar.gz"}, nil
}

func (o options) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(o.out, name), data, 0o644) //nolint:gosec // for others to read
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
