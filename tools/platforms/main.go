// Command platforms checks that programs build for other platforms at a tenth of what building them takes: it reads the
// files that each platform's build takes and checks their types, down to the standard library. Programs of a folder with
// +cgo are checked as they are compiled where a C compiler is; of C itself nothing is checked.
//
//	platforms -on darwin/arm64,linux/arm64 .=./cmd/elastic .+cgo=./cmd/elastic-gpu-agent sandbox=./cmd/elastic-sandbox
//
// A program that passes compiles there. What it does not do is assemble, link or run; "make build-others" links.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
)

func main() {
	on := flag.String("on", "", "platforms, GOOS/GOARCH, comma between")
	flag.Parse()
	failed := false
	for _, name := range strings.Split(*on, ",") {
		checked, bodies, errs := check(name, flag.Args())
		for _, err := range errs {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		}
		failed = failed || len(errs) > 0
		fmt.Printf("%s: types of %d packages, %d of them with what differs from this platform\n", name, checked, bodies)
	}
	if failed {
		os.Exit(1)
	}
}

// module is a folder and programs of it.
type module struct {
	dir, cgo string
	packages []string
}

func parseModule(text string) (module, error) {
	dir, packages, ok := strings.Cut(text, "=")
	if !ok {
		return module{}, fmt.Errorf("%q: write FOLDER=PACKAGE,...", text)
	}
	m := module{dir: dir, cgo: "0", packages: strings.Split(packages, ",")}
	if dir, with := strings.CutSuffix(dir, "+cgo"); with {
		m.dir, m.cgo = dir, "1"
	}
	return m, nil
}

// check the modules' programs on one platform.
func check(name string, modules []string) (checked, bodies int, errs []error) {
	goos, goarch, ok := strings.Cut(name, "/")
	if !ok {
		return 0, 0, []error{fmt.Errorf("write GOOS/GOARCH")}
	}
	c := newChecker(goarch)
	for _, text := range modules {
		m, err := parseModule(text)
		if err != nil {
			return 0, 0, []error{err}
		}
		here, err := list(m, runtime.GOOS, runtime.GOARCH)
		if err != nil {
			return 0, 0, []error{err}
		}
		there, err := list(m, goos, goarch)
		if err != nil {
			return 0, 0, []error{err}
		}
		c.checkAll(there, here)
	}
	return len(c.done), c.bodies, c.errs
}
