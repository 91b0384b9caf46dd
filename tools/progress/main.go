// Command progress is "go build" that says how far it is: how many of how many packages, and about how long yet.
//
//	progress -dir sandbox -say "the sandbox" -ldflags "-s -w" -o ../bin/ ./cmd/elastic-sandbox
//
// It depends on the standard library alone, so that it is there seconds after an empty cache. Where there is nothing to
// build it costs nothing.
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
	if err := o.build(newDisplay(os.Stderr, time.Now)); err != nil {
		fmt.Fprintln(os.Stderr, "building", o.say+":", err)
		os.Exit(1)
	}
}

// build runs "go build -v" and shows where it stands, until it ends.
func (o options) build(show *display) error {
	cmd := o.command("build", "-v", "-o", o.out, "-ldflags", o.ldflags)
	cmd.Env = append(os.Environ(), compilerMemory()...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines, tick := readLines(stderr), time.NewTicker(500*time.Millisecond)
	defer tick.Stop()
	state := &progress{say: o.say, modules: modulesIn(o.dir), began: time.Now()}
	graphs := make(chan *graph, 1)
	var early *exec.Cmd
	defer func() {
		if early != nil {
			interrupt(early)
			_ = early.Wait()
		}
	}()
	for {
		select {
		case line, more := <-lines:
			if !more {
				if err := cmd.Wait(); err != nil {
					return err
				}
				show.end(state.done())
				return nil
			}
			downloads, first := state.downloaded > 0, state.compiling.IsZero()
			if !state.read(line) {
				show.print(line)
			}
			if !downloads && state.downloaded > 0 && first {
				early = o.compileAhead()
			}
			if first && !state.compiling.IsZero() {
				interrupt(early)
				go func() { graphs <- o.graph() }()
				defer o.downloadNext()()
			}
		case g := <-graphs:
			state.know(g)
		case s := <-o.signals:
			_ = cmd.Process.Signal(s) // one that has ended needs none
		case <-tick.C:
			show.status(state.line(time.Now()))
		}
	}
}

func (o options) command(args ...string) *exec.Cmd {
	if o.tags != "" {
		args = append(args, "-tags", o.tags)
	}
	cmd := exec.Command("go", append(args, o.packages...)...)
	cmd.Dir = o.dir
	return cmd
}

// graph of what is built; nil where go cannot say, which the build does better.
func (o options) graph() *graph {
	out, err := o.command("list", "-deps", "-f", listFormat).Output()
	if err != nil {
		return nil
	}
	g, err := readGraph(string(out))
	if err != nil {
		return nil
	}
	return g
}

// ahead are packages of Go that nearly every program here comes to need.
var ahead = strings.Fields("net/http net/http/pprof net/http/httputil html/template expvar go/doc go/parser encoding/xml encoding/csv log/slog os/user testing")

// compileAhead begins to compile them, while the build waits for modules and uses little of the processors. It is interrupted when
// the build begins to compile: what was not reached, that does, and so it does if this cannot be started.
func (o options) compileAhead() *exec.Cmd {
	cmd := exec.Command("go", append([]string{"build"}, ahead...)...)
	cmd.Dir, cmd.Env = o.dir, append(os.Environ(), compilerMemory()...)
	if cmd.Start() != nil {
		return nil
	}
	return cmd
}

// interrupt asks go to end; one that has ended needs none.
func interrupt(cmd *exec.Cmd) {
	if cmd != nil {
		_ = cmd.Process.Signal(os.Interrupt)
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

// readLines sends what can be read, line by line, and closes the channel at the end.
func readLines(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		reader := bufio.NewReader(r)
		for {
			line, err := reader.ReadString('\n')
			if line = strings.TrimSuffix(line, "\n"); line != "" {
				lines <- line
			}
			if err != nil {
				return // go has ended, or will say why not
			}
		}
	}()
	return lines
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
