package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// listFormat has a package a line: its name, folder, files and imports.
const listFormat = `{{.ImportPath}}|{{.Dir}}|{{join .GoFiles " "}}|{{join .Imports " "}}`

// graph is what a build is made of.
type graph struct {
	packages map[string]*node
}

type node struct {
	imports []string
	// bytes of source: how long it takes to compile, as far as one can tell before.
	bytes int64
}

func readGraph(list string) (*graph, error) {
	g := &graph{packages: map[string]*node{}}
	for line := range strings.Lines(list) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(fields) != 4 {
			return nil, fmt.Errorf("go list printed %q", line)
		}
		n := &node{imports: strings.Fields(fields[3])}
		for _, file := range strings.Fields(fields[2]) {
			if info, err := os.Stat(filepath.Join(fields[1], file)); err == nil {
				n.bytes += info.Size()
			}
		}
		g.packages[fields[0]] = n
	}
	if len(g.packages) == 0 {
		return nil, errors.New("no packages")
	}
	return g, nil
}
