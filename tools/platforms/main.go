// Command platforms checks that programs build for other platforms, without cgo, at a tenth of what building them takes:
// it reads the files that each platform's build takes and checks their types, down to the standard library.
//
//	platforms -on darwin/arm64,linux/arm64 .=./cmd/elastic sandbox=./cmd/elastic-sandbox
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

// check the modules' programs on one platform.
func check(name string, modules []string) (checked, bodies int, errs []error) {
	goos, goarch, ok := strings.Cut(name, "/")
	if !ok {
		return 0, 0, []error{fmt.Errorf("write GOOS/GOARCH")}
	}
	c := newChecker(goarch)
	for _, module := range modules {
		dir, packages, ok := strings.Cut(module, "=")
		if !ok {
			return 0, 0, []error{fmt.Errorf("%q: write FOLDER=PACKAGE,...", module)}
		}
		here, err := list(dir, strings.Split(packages, ","), runtime.GOOS, runtime.GOARCH)
		if err != nil {
			return 0, 0, []error{err}
		}
		there, err := list(dir, strings.Split(packages, ","), goos, goarch)
		if err != nil {
			return 0, 0, []error{err}
		}
		c.checkAll(there, here)
	}
	return len(c.done), c.bodies, c.errs
}
