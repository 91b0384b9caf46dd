package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// child is a process that ends when we do: it holds the reading end of a pipe
// as its standard input and stops when that closes.
type child struct {
	name string
	cmd  *exec.Cmd
	life io.Closer
	done chan struct{} // closed when it has ended
	err  error         // how, once done is closed
}

// startChild runs a program in a process group of its own, so that a Ctrl-C
// at the terminal reaches us alone and we end the children in order. It has the
// mounts of a process, or ours where that is 0.
func startChild(name, path string, args []string, stdout, stderr io.Writer, mountsOf int) (*child, error) {
	cmd := exec.Command(path, append(args, "--until-stdin-closes")...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	life, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := startInMounts(cmd, mountsOf); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	c := &child{name: name, cmd: cmd, life: life, done: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// stop asks the process to end and, after the grace period, kills it.
func (c *child) stop(grace time.Duration) {
	_ = c.life.Close()
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(grace):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// sibling finds a program beside this one, or on the path.
func sibling(name string) (string, error) {
	dir := ownFolder()
	if path := filepath.Join(dir, name); dir != "" && isExecutable(path) {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s: %s", absent(name), toGet(name, dir))
	}
	return path, nil
}

// absent says that a program was not found.
func absent(name string) string { return name + " is neither beside this program nor on the PATH" }

// ownFolder is where this program lies, whatever link it was started by; empty where the system does not say.
func ownFolder() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return ""
	}
	return filepath.Dir(self)
}

// targets of the Makefile build programs that "make up" does not.
var targets = map[string]string{
	"elastic-sandbox": "build-sandbox", "elastic-scheduler": "build-scheduler", "elastic-gpu-arbiter": "build-native", "elastic-web": "build-rest",
}

// toGet says how to get a program that was not found, for a user whose "elastic" is in a folder: that of a checkout, or another.
func toGet(name, dir string) string {
	if _, err := os.Stat(filepath.Join(dir, "..", "cmd", "elastic", "main.go")); err == nil {
		return fmt.Sprintf("run 'make %s'", cmp.Or(targets[name], "build-programs"))
	}
	switch name {
	case "elastic-scheduler", "elastic-gpu-arbiter": // which go install does not take
		return fmt.Sprintf("take it from the archive of a release for Linux, or from 'make %s' in a checkout", targets[name])
	case "elastic-sandbox":
		return "run 'go install github.com/elastic-ai/elastic/sandbox/cmd/elastic-sandbox@latest', or take it from the archive of a release"
	}
	return fmt.Sprintf("run 'go install github.com/elastic-ai/elastic/cmd/%s@latest', or take it from the archive of a release", name)
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// askReady asks a readiness endpoint.
func askReady(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// waitReady asks until the answer is yes, the process ends, or ctx does.
func waitReady(ctx context.Context, c *child, ready func(context.Context) error) error {
	for {
		last := ready(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-c.done:
			return fmt.Errorf("%s ended while starting: %w", c.name, errors.Join(c.err, errEnded))
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready: %w", c.name, last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

var errEnded = errors.New("its log says why")
