//go:build linux

package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// removePods ends every pod through the container runtime, which also takes its network away.
func (n *node) removePods(ctx context.Context) error {
	connection, err := grpc.NewClient("unix://"+n.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	runtime := cri.NewRuntimeServiceClient(connection)
	pods, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var failed error
	for _, pod := range pods.GetItems() {
		if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pod.GetId()}); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		_, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: pod.GetId()})
		failed = errors.Join(failed, err)
	}
	return failed
}

// hierarchies of cgroups on this machine: one, or one for each controller.
func hierarchies() ([]string, error) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}, nil
	}
	all, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	for i := range all {
		all[i] = filepath.Dir(all[i])
	}
	return all, err
}

// makeCgroup makes the node's, which a kubelet wants to find.
func (n *node) makeCgroup() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range all {
		if err := os.MkdirAll(filepath.Join(root, n.cgroup()), 0o755); err != nil {
			return fmt.Errorf("making a cgroup: %w", err)
		}
	}
	return nil
}

// removeCgroup removes the node's with all below it. The last processes may still be ending.
func (n *node) removeCgroup() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range all {
		top := filepath.Join(root, n.cgroup())
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			err := removeTree(top)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return err
			}
		}
	}
	return nil
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("removing cgroup %s: %w", dir, err)
	}
	return nil
}

// removeBridge takes the pods' bridge away: down, then deleted.
func (n *node) removeBridge() error {
	name := n.bridge()
	if _, err := os.Stat("/sys/class/net/" + name); err != nil {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(0) // no flags: it is down
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("taking %s down: %w", name, err)
	}
	word, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCBRDELBR, uintptr(unsafe.Pointer(word))); errno != 0 {
		return fmt.Errorf("deleting %s: %w", name, errno)
	}
	return nil
}
