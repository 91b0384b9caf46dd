package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// checker has the types of one platform's packages.
type checker struct {
	sizes  types.Sizes
	done   map[string]*checked
	bodies int
	errs   []error
}

type checked struct {
	dir   string
	files []string
	types *types.Package
}

// enough errors of one platform.
const enough = 20

func newChecker(goarch string) *checker {
	return &checker{sizes: types.SizesFor("gc", goarch), done: map[string]*checked{}}
}

// checkAll checks packages in their order; one that an earlier module has too is checked once, unless it is of other files
// here (with cgo and without), or imports one that is. Functions are looked into where the platform can matter to them: in
// packages of other files than here, or that import one.
func (c *checker) checkAll(there, here []*source) {
	differ, again := differing(there, here), map[string]bool{}
	for _, s := range there {
		if s.ImportPath == "unsafe" || len(c.errs) >= enough {
			continue
		}
		if old, ok := c.done[s.ImportPath]; ok {
			if old.dir == s.Dir && slices.Equal(old.files, s.GoFiles) && !slices.ContainsFunc(s.Imports, func(path string) bool { return again[path] }) {
				continue
			}
			again[s.ImportPath] = true
		}
		look := !s.Standard && (differ[s.ImportPath] || slices.ContainsFunc(s.Imports, func(path string) bool { return differ[path] }))
		c.check(s, look)
	}
}

func (c *checker) check(s *source, look bool) {
	fset := token.NewFileSet()
	files, err := parse(fset, s)
	if err != nil {
		c.errs = append(c.errs, err)
	}
	config := types.Config{
		Importer: imports{c, s}, Sizes: c.sizes, IgnoreFuncBodies: !look, FakeImportC: len(s.CgoFiles) > 0,
		Error: func(err error) {
			if len(s.CgoFiles) == 0 || !strings.Contains(err.Error(), "undefined: _C") { // what cgo makes of C, which is not read
				c.errs = append(c.errs, err)
			}
		},
	}
	if s.Module != nil && s.Module.GoVersion != "" {
		config.GoVersion = "go" + s.Module.GoVersion
	}
	pkg, _ := config.Check(s.ImportPath, fset, files, nil) // its errors have been counted
	c.done[s.ImportPath] = &checked{dir: s.Dir, files: s.GoFiles, types: pkg}
	if look {
		c.bodies++
	}
}

func parse(fset *token.FileSet, s *source) ([]*ast.File, error) {
	files, errs := make([]*ast.File, len(s.GoFiles)), make([]error, len(s.GoFiles))
	var group sync.WaitGroup
	for i, name := range s.GoFiles {
		group.Go(func() {
			files[i], errs[i] = parser.ParseFile(fset, filepath.Join(s.Dir, name), nil, parser.SkipObjectResolution)
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return files, err
		}
	}
	return files, nil
}

// imports finds what a package imports among what was checked before it.
type imports struct {
	*checker
	of *source
}

func (i imports) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if actual, ok := i.of.ImportMap[path]; ok {
		path = actual
	}
	if found, ok := i.done[path]; ok && found.types != nil {
		return found.types, nil
	}
	return nil, fmt.Errorf("%s is not there", path)
}
