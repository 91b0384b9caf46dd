// Command elastic is for people: it starts clusters, submits jobs and answers
// why they wait.
package main

import (
	"os"

	"github.com/elastic-ai/elastic/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args, os.Stdout, os.Stderr)) }
