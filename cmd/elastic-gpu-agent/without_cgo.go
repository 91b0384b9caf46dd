//go:build !cgo

// Command elastic-gpu-agent loads the NVIDIA driver's library, which takes cgo: without it, as where there is no C compiler,
// it is built to say so.
package main

import (
	"fmt"
	"os"

	"github.com/elastic-ai/elastic/internal/version"
)

func main() {
	fmt.Fprintln(os.Stderr, "elastic-gpu-agent "+version.String()+" was built without cgo: install a C compiler and build it again")
	os.Exit(1)
}
