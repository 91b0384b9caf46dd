// Command progress is "go build" that says how far it is: how many of how many packages, and about how long yet.
//
//	progress -dir sandbox -say "the sandbox" -ldflags "-s -w" -o ../bin/ ./cmd/elastic-sandbox
//
// It depends on the standard library alone, so that it is there seconds after an empty cache.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

type options struct {
	dir, say, out, ldflags, tags, next string
	packages                           []string
	signals                            chan os.Signal // to go, which ends what it started; this process waits for it
}

func main() {
	o := options{signals: make(chan os.Signal, 1)}
	flag.StringVar(&o.dir, "dir", ".", "folder of the module")
	flag.StringVar(&o.say, "say", "the programs", "what is built, in words")
	flag.StringVar(&o.out, "o", "", "where to, as 'go build -o' takes it")
	flag.StringVar(&o.ldflags, "ldflags", "", "as 'go build -ldflags' takes it")
	flag.StringVar(&o.tags, "tags", "", "as 'go build -tags' takes it")
	flag.StringVar(&o.next, "next", "", "FOLDER=PACKAGE that will be built after this: its modules are downloaded meanwhile")
	flag.Parse()
	o.packages = flag.Args()
	if len(o.packages) == 0 {
		fmt.Fprintln(os.Stderr, "progress: which packages?")
		os.Exit(2)
	}
	signal.Notify(o.signals, os.Interrupt, syscall.SIGTERM)
	if err := build(o, newDisplay(os.Stderr, time.Now)); err != nil {
		fmt.Fprintln(os.Stderr, "building", o.say+":", err)
		os.Exit(1)
	}
}

// build downloads what is missing, then compiles and links.
func build(o options, show *display) error {
	began := time.Now()
	wanted := modulesIn(o.dir)
	downloaded := 0
	list, err := o.run(show, func() string {
		if downloaded == 0 {
			return ""
		}
		return fmt.Sprintf("%s: downloading modules, %d of at most %d", o.say, downloaded, wanted)
	}, func(line string) bool {
		if !strings.HasPrefix(line, "go: downloading ") {
			return false
		}
		downloaded++
		return true
	}, "list", "-deps", "-f", listFormat)
	if err != nil {
		return err
	}
	downloading := time.Since(began)
	graph, err := readGraph(list, o.dir)
	if err != nil {
		return err
	}
	defer o.downloadNext()()
	began = time.Now()
	state := newEstimate(graph)
	_, err = o.run(show, func() string {
		line := state.line(time.Since(began))
		if line == "" {
			return ""
		}
		return o.say + ": " + line
	}, state.started, "build", "-v", "-o", o.out, "-ldflags", o.ldflags)
	if err != nil {
		return err
	}
	if show.shown {
		words := ""
		if downloaded > 0 {
			words = fmt.Sprintf("%d modules in %s, ", downloaded, short(downloading))
		}
		show.end(fmt.Sprintf("%s: built, %s%d packages in %s", o.say, words, len(state.compiled), short(time.Since(began))))
	}
	return nil
}

// run runs go with the packages, shows what status says while it runs, and returns its output. Lines on its standard
// error go to read first; what that does not know is printed.
func (o options) run(show *display, status func() string, read func(string) bool, args ...string) (string, error) {
	if o.tags != "" {
		args = append(args, "-tags", o.tags)
	}
	cmd := exec.Command("go", append(args, o.packages...)...)
	cmd.Dir = o.dir
	cmd.Env = append(os.Environ(), compilerMemory()...)
	var out strings.Builder
	cmd.Stdout = &out
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		reader := bufio.NewReader(pipe)
		for {
			line, err := reader.ReadString('\n')
			if line = strings.TrimSuffix(line, "\n"); line != "" {
				lines <- line
			}
			if err != nil {
				if err != io.EOF {
					lines <- err.Error()
				}
				return
			}
		}
	}()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case line, more := <-lines:
			if !more {
				return out.String(), cmd.Wait()
			}
			if !read(line) {
				show.print(line)
			}
		case s := <-o.signals:
			_ = cmd.Process.Signal(s) // one that has ended needs none
		case <-tick.C:
			show.status(status())
		}
	}
}

// downloadNext begins to download what is built after this, and returns a function that waits for it. That it cannot be
// had is for the next build to say.
func (o options) downloadNext() (wait func()) {
	dir, packages, ok := strings.Cut(o.next, "=")
	if !ok {
		return func() {}
	}
	cmd := exec.Command("go", "list", "-deps", packages)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		return func() {}
	}
	return func() { _ = cmd.Wait() }
}

// modulesIn counts the modules whose files a module's go.sum has checksums of.
func modulesIn(dir string) int {
	data, err := os.ReadFile(dir + "/go.sum")
	if err != nil {
		return 0
	}
	count := 0
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 3 && !strings.HasSuffix(fields[1], "/go.mod") {
			count++
		}
	}
	return count
}
