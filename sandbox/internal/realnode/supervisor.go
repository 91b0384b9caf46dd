//go:build linux

package realnode

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// supervisor runs a process: it is started again when it ends, and killed when we are.
type supervisor struct {
	name, log, pidFile string
	command            func() *exec.Cmd

	mu      sync.Mutex
	process *os.Process
	ended   sync.WaitGroup
}

// supervise until ctx ends; then the process is asked to stop, and waited for.
func (s *supervisor) supervise(ctx context.Context) {
	s.ended.Go(func() {
		// The kernel kills a child with the thread that made it: this one lives as long as we do.
		runtime.LockOSThread()
		for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
			began := time.Now()
			err := s.once(ctx)
			if ctx.Err() != nil {
				return
			}
			s.note(fmt.Sprintf("it ended (%v) and is started again", err))
			if time.Since(began) > time.Minute {
				pause = 100 * time.Millisecond
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
}

func (s *supervisor) once(ctx context.Context) error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(s.pidFile, fmt.Append(nil, cmd.Process.Pid), 0o600); err != nil {
		_ = cmd.Process.Kill()
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(15 * time.Second):
		_ = cmd.Process.Kill()
		return <-ended
	}
}

func (s *supervisor) note(what string) {
	if log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
		fmt.Fprintf(log, "--- %s %s: %s\n", time.Now().Format(time.RFC3339), s.name, what)
		log.Close()
	}
}
