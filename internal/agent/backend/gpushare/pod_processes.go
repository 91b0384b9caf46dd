package gpushare

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// procDir is where the kernel says whose a process is.
const procDir = "/proc"

// InPod says whether a process is one of a pod's containers, by the cgroup that the kubelet has put it into.
func InPod(pid int, uid types.UID) (bool, error) {
	data, err := os.ReadFile(filepath.Join(procDir, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false, fmt.Errorf("whose process %d is: %w", pid, err)
	}
	return uid != "" && podOf(string(data)) == uid, nil
}

// podPart of a cgroup's path: podUID, or with the systemd driver kubepods-burstable-podUID.slice, with underscores.
var podPart = regexp.MustCompile(`^(?:kubepods(?:-[a-z]+)?-)?pod([0-9a-zA-Z_-]+?)(?:\.slice)?$`)

// podOf the cgroups of a process, as the kernel lists them. Below its pod's a container may have made others, of any
// name: the first one counts.
func podOf(cgroups string) types.UID {
	found := types.UID("")
	for line := range strings.Lines(cgroups) {
		_, path, _ := strings.Cut(strings.TrimSpace(line), ":") // ID:controllers:path
		_, path, _ = strings.Cut(path, ":")
		for part := range strings.SplitSeq(path, "/") {
			match := podPart.FindStringSubmatch(part)
			if match == nil {
				continue
			}
			uid := types.UID(strings.ReplaceAll(match[1], "_", "-"))
			if found != "" && found != uid {
				return "" // the hierarchies do not agree
			}
			found = uid
			break
		}
	}
	return found
}

// ticks a second, in which the kernel counts for programs.
const ticks = 100

// ageOf a process.
func ageOf(pid int) (time.Duration, error) {
	data, err := os.ReadFile(filepath.Join(procDir, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("how old process %d is: %w", pid, err)
	}
	up, err := uptime()
	if err != nil {
		return 0, err
	}
	// Its name is in parentheses, and may have any characters.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const startTime = 22 - 3 // the fields are counted from one, and two of them are cut off
	if len(fields) <= startTime {
		return 0, fmt.Errorf("how old process %d is: %w", pid, errors.ErrUnsupported)
	}
	started, err := strconv.ParseInt(fields[startTime], 10, 64)
	if err != nil {
		return 0, err
	}
	return max(up-time.Duration(started)*(time.Second/ticks), 0), nil
}

// uptime of the node.
func uptime() (time.Duration, error) {
	data, err := os.ReadFile(filepath.Join(procDir, "uptime"))
	if err != nil {
		return 0, err
	}
	text, _, _ := strings.Cut(string(data), " ")
	seconds, err := strconv.ParseFloat(text, 64)
	return time.Duration(seconds * float64(time.Second)), err
}
