package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

// source is a package as a platform's build takes it.
type source struct {
	ImportPath, Dir string
	Standard        bool
	GoFiles         []string
	CgoFiles        []string
	Imports         []string
	ImportMap       map[string]string
	Module          *struct{ GoVersion string }
	Error           *struct{ Err string }
}

// list is what programs are made of, each package after those it imports.
func list(m module, goos, goarch string) ([]*source, error) {
	args := []string{"list", "-deps", "-json=ImportPath,Dir,Standard,GoFiles,CgoFiles,Imports,ImportMap,Module,Error"}
	cmd := exec.Command("go", append(args, m.packages...)...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED="+m.cgo)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &problems)
	}
	var sources []*source
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		s := &source{}
		err := decoder.Decode(s)
		if errors.Is(err, io.EOF) {
			return sources, nil
		}
		if err != nil {
			return nil, err
		}
		if s.Error != nil {
			return nil, errors.New(s.Error.Err)
		}
		s.GoFiles = append(s.GoFiles, s.CgoFiles...)
		sources = append(sources, s)
	}
}

// differing are the packages that are made of other files than here, where the build itself has compiled them.
func differing(there, here []*source) map[string]bool {
	files := map[string][]string{}
	for _, s := range here {
		files[s.ImportPath] = s.GoFiles
	}
	differ := map[string]bool{}
	for _, s := range there {
		if mine, ok := files[s.ImportPath]; !ok || !slices.Equal(mine, s.GoFiles) {
			differ[s.ImportPath] = true
		}
	}
	return differ
}
