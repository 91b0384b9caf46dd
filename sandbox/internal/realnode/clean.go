//go:build linux

package realnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// unified is where version 2 of cgroups is, which is then the only one.
const unified = "/sys/fs/cgroup"

// hierarchies of cgroups on this machine: one, or one for each controller.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(unified + "/cgroup.controllers"); err == nil {
		return []string{unified}, nil
	}
	all, err := filepath.Glob(unified + "/*/cgroup.procs")
	for i := range all {
		all[i] = filepath.Dir(all[i])
	}
	if err == nil && len(all) == 0 {
		err = errors.New("there are none in " + unified)
	}
	return all, err
}

// makeCgroup makes the node's, which a kubelet wants to find.
func (n *node) makeCgroup() error {
	all, err := hierarchies()
	if err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}
	for _, root := range all {
		if root == unified {
			if err := delegate(root); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(filepath.Join(root, n.cgroup()), 0o755); err != nil {
			return fmt.Errorf("making a cgroup: %w", err)
		}
	}
	return nil
}

// delegate has a root's children have all its controllers, as systemd does where it runs: a kubelet asks for them.
func delegate(root string) error {
	offered, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	control := filepath.Join(root, "cgroup.subtree_control")
	given, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(offered)) {
		if slices.Contains(strings.Fields(string(given)), controller) || !slices.Contains(wanted, controller) {
			continue
		}
		if err := os.WriteFile(control, []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("controller %s for cgroups of %s: %w", controller, root, err)
		}
	}
	return nil
}

// wanted are the controllers that a kubelet looks for, and those that limit devices' use.
var wanted = []string{"cpu", "cpuset", "hugetlb", "io", "memory", "pids"}

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

// loopbackAlias is the name of the address that a node gives the loopback.
const loopbackAlias = "lo:elastic"

// setLoopbackAddress gives the loopback one more address.
func setLoopbackAddress(ip net.IP) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, set := range []struct {
		request uint
		value   net.IP
	}{{unix.SIOCSIFADDR, ip}, {unix.SIOCSIFNETMASK, net.IPv4bcast.To4()}} {
		request, err := unix.NewIfreq(loopbackAlias)
		if err != nil {
			return err
		}
		if err := request.SetInet4Addr(set.value); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, set.request, request); err != nil {
			return fmt.Errorf("giving the loopback %s: %w", ip, err)
		}
	}
	return nil
}

// removeLoopbackAddress takes it away: an alias that is down is gone.
func removeLoopbackAddress() error {
	if err := takeDown(loopbackAlias); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	return nil
}

func takeDown(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
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
	return nil
}

// removeBridge takes the pods' bridge away: down, then deleted.
func (n *node) removeBridge() error {
	name := n.bridge()
	if _, err := os.Stat("/sys/class/net/" + name); err != nil {
		return nil
	}
	if err := takeDown(name); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	word, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCBRDELBR, uintptr(unsafe.Pointer(word))); errno != 0 {
		return fmt.Errorf("deleting %s: %w", name, errno)
	}
	return nil
}
