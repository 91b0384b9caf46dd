//go:build linux

package realnode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/elastic-ai/elastic/sandbox/internal/statedir"
)

// Clean takes away what is left of a node that was killed together with all that it ran, or whose machine went down. Its
// images stay. It fails while the node runs.
func Clean(dir string) error {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := enter(filepath.Join(absolute, "kubelet")); err != nil {
		return err
	}
	held, err := statedir.Open(absolute)
	if err != nil {
		return err
	}
	defer held.Close()
	return (&node{dir: absolute}).clean()
}

// clean the machine of an earlier life of the node: its processes, what it noted of them, cgroups, bridge and address.
func (n *node) clean() error {
	if err := n.endProcesses(); err != nil {
		return err
	}
	if err := n.forgetContainers(); err != nil {
		return err
	}
	return errors.Join(n.removeCgroup(), n.removeBridge(), n.giveBackAddress())
}

// endProcesses kills what is left of pods and of what ran them.
func (n *node) endProcesses() error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left, maybe, err := n.processes()
		if err != nil {
			return err
		}
		for _, pid := range slices.Concat(left, maybe) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("ending process %d of the node: %w", pid, err)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of the node do not end", left)
		}
	}
}

// processes of the node: those in its cgroups, and those that were started with its files; and those that may be.
func (n *node) processes() (found, maybe []int, err error) {
	all, err := hierarchies()
	if err != nil {
		return nil, nil, err
	}
	for _, root := range all {
		if err := filepath.WalkDir(filepath.Join(root, n.cgroup()), func(path string, _ os.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err != nil || filepath.Base(path) != "cgroup.procs" {
				return err
			}
			inside, err := os.ReadFile(path)
			for line := range strings.FieldsSeq(string(inside)) {
				if pid, failed := strconv.Atoi(line); failed == nil && pid > 0 {
					found = append(found, pid)
				}
			}
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
				return nil // it has just gone
			}
			return err
		}); err != nil {
			return nil, nil, err
		}
	}
	for _, dir := range glob("/proc/[0-9]*") {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		switch n.started(dir) {
		case ours:
			found = append(found, pid)
		case perhaps:
			maybe = append(maybe, pid)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), maybe, nil
}

// whose a process is.
type whose int

const (
	others whose = iota
	ours
	perhaps // it says so, and another person may have it say so
)

// started says whether the process of a folder in /proc is the node's: containerd, a shim, or a kubelet with its files, or a
// daemon of MPS with its pipes. Anybody can give a process such a name and such files, so ours alone count; but a server of
// MPS runs as the person who uses it.
func (n *node) started(proc string) whose {
	line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil || len(line) == 0 {
		return others // it has ended
	}
	words := strings.Split(string(line), "\x00")
	mine := false
	switch program := filepath.Base(words[0]); {
	case program == "containerd-shim-runc-v2", program == "containerd", program == "kubelet":
		mine = slices.ContainsFunc(words[1:], func(word string) bool {
			return word == n.socket() || word == n.path("containerd.toml") || word == n.path("kubelet.json")
		})
	case strings.HasPrefix(program, "nvidia-cuda-mps"):
		environment, _ := os.ReadFile(filepath.Join(proc, "environ"))
		mine = bytes.Contains(append([]byte{0}, environment...), []byte("\x00CUDA_MPS_PIPE_DIRECTORY="+n.dir+"/"))
	}
	switch {
	case mine && runsAsUs(proc):
		return ours
	case mine && filepath.Base(words[0]) == "nvidia-cuda-mps-server":
		return perhaps
	}
	return others
}

// runsAsUs says whether a process is of our user, however it came to be: one that a person started and that has gained
// our rights is not.
func runsAsUs(proc string) bool {
	status, _ := os.ReadFile(filepath.Join(proc, "status"))
	us := strconv.Itoa(os.Geteuid())
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			return !slices.ContainsFunc(strings.Fields(ids), func(id string) bool { return id != us })
		}
	}
	return false
}

// forgetContainers removes what the kubelet and containerd have noted of what runs, as a start of the machine does where
// that is in memory: a kubelet that finds it takes pods for running ones. None of it may be mounted, or more would be
// removed than that.
func (n *node) forgetContainers() error {
	if err := unmountBelow(n.dir); err != nil {
		return err
	}
	for _, file := range glob(n.path("containerd", "state", "io.containerd.runtime.v2.task", "*", "*", "bootstrap.json")) {
		removeSocket(file)
	}
	gone := append(glob(n.path("kubelet", "*")), glob(n.path("*.pid"))...)
	gone = append(gone, n.path("containerd", "state"), n.path("containerd", "runc"), n.socket(), n.socket()+".ttrpc")
	for _, path := range gone {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// glob of a pattern that is right.
func glob(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	return found
}

// removeSocket of a shim, which lies outside the node's folder.
func removeSocket(file string) {
	var shim struct {
		Address string `json:"address"`
	}
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &shim) != nil {
		return
	}
	if path, ok := strings.CutPrefix(shim.Address, "unix://"); ok {
		if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			_ = os.Remove(path)
		}
	}
}

// unmountBelow takes mounts below a folder out of this process's own, which do not reach the machine's.
func unmountBelow(dir string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var below []string
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 4 && strings.HasPrefix(words[4], dir+"/") {
			below = append(below, words[4])
		}
	}
	slices.Reverse(below) // what was mounted last first
	for _, at := range below {
		if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting %s: %w", at, err)
		}
	}
	return nil
}

// forgetNode deletes what the cluster has of an earlier life of the node. Pods that ran there are lost: they are marked as
// disrupted, as those of a node that is gone for good are, so that a job may see that the failure was not its own.
func (n *node) forgetNode(ctx context.Context, client kubernetes.Interface) error {
	on := fields.OneTermEqualSelector("spec.nodeName", n.Name).String()
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: on})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if err := losePod(ctx, client, &pods.Items[i]); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("pod %s of an earlier run: %w", pods.Items[i].Name, err)
		}
	}
	err = client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func losePod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	all := client.CoreV1().Pods(pod.Namespace)
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil // it has ended before
	}
	now := metav1.Now()
	pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "NodeRestarted", "its machine was started again, or the cluster on it"
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: pod.Status.Reason, Message: pod.Status.Message, LastTransitionTime: now,
	})
	if _, err := all.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return all.Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
}
