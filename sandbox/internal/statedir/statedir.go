package statedir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Dir is a locked state folder.
type Dir struct {
	path string
	lock *os.File
}

// InUseError says that another process runs on the same folder.
type InUseError struct{ PID int }

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return "already running"
	}
	return fmt.Sprintf("already running (pid %d)", e.PID)
}

// Open creates the folder where it is missing and locks it; *InUseError when
// another process holds it.
func Open(path string) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	for _, p := range []string{abs, filepath.Join(abs, "log")} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			return nil, fmt.Errorf("state folder: %w", err)
		}
	}
	lock, err := os.OpenFile(filepath.Join(abs, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	held, err := tryLock(lock)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if !held {
		defer lock.Close()
		return nil, &InUseError{PID: readPID(lock)}
	}
	d := &Dir{path: abs, lock: lock}
	if err := d.writePID(); err != nil {
		lock.Close()
		return nil, err
	}
	return d, nil
}

func (d *Dir) writePID() error {
	if err := d.lock.Truncate(0); err != nil {
		return err
	}
	_, err := d.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func readPID(f *os.File) int {
	buf := make([]byte, 32)
	n, _ := f.ReadAt(buf, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// Close gives the folder free. The lock file stays: removing it would let two
// processes hold locks on two files of the same name.
func (d *Dir) Close() error { return d.lock.Close() }

// Wipe forgets everything an earlier run left, logs and the lock excepted.
func (d *Dir) Wipe() error {
	for _, p := range []string{d.PKI(), d.Etcd(), d.Config(), d.Kubeconfig()} {
		if err := os.RemoveAll(p); err != nil {
			return fmt.Errorf("wipe: %w", err)
		}
	}
	return nil
}

func (d *Dir) PKI() string        { return filepath.Join(d.path, "pki") }
func (d *Dir) Etcd() string       { return filepath.Join(d.path, "etcd") }
func (d *Dir) Config() string     { return filepath.Join(d.path, "config") }
func (d *Dir) Kubeconfig() string { return filepath.Join(d.path, "kubeconfig") }

// Log names a log file.
func (d *Dir) Log(name string) string { return filepath.Join(d.path, "log", name+".log") }

// Path is the folder itself.
func (d *Dir) Path() string { return d.path }
