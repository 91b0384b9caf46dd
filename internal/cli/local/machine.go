package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Need is something that "elastic up --cards" takes of a machine.
type Need struct {
	Met bool
	// What it is, or what is missing; Do is how to get it.
	What, Do string
}

// nodePrograms are what a real node runs; "make build-node" builds them.
var nodePrograms = []string{"kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "loopback", "host-local", "pause"}

// MachineNeeds says of this machine what "elastic up --cards" takes.
func MachineNeeds(ctx context.Context) []Need {
	if runtime.GOOS != "linux" {
		return []Need{{What: "cards are used on Linux; this is " + runtime.GOOS, Do: "'elastic up' without --cards simulates them"}}
	}
	needs := []Need{programsNeeded(), cardsNeeded(ctx)}
	add := func(met bool, have, lack, do string) {
		if met {
			needs = append(needs, Need{Met: true, What: have})
		} else {
			needs = append(needs, Need{What: lack, Do: do})
		}
	}
	add(os.Geteuid() == 0, "this is root", "containers, mounts and cgroups take root", "sudo elastic up --cards")
	known, _ := os.ReadFile("/proc/filesystems")
	filesystems := strings.Fields(string(known))
	add(slices.Contains(filesystems, "overlay"), "the kernel has overlay", "the kernel knows no overlay, of which images are made", "modprobe overlay")
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	_, v2 := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	add(len(v1) > 0 || v2 == nil || slices.Contains(filesystems, "cgroup2"), "the kernel has cgroups", "there are no cgroups in /sys/fs/cgroup", "mount -t cgroup2 none /sys/fs/cgroup")
	_, uvm := os.Stat("/dev/nvidia-uvm")
	_, card := os.Stat("/dev/nvidia0")
	if card == nil {
		add(uvm == nil, "CUDA's device is there", "/dev/nvidia-uvm is not there, without which no CUDA program runs", "nvidia-modprobe -u -c 0")
	}
	return needs
}

const buildPrograms = "make build build-node"

func programsNeeded() Need {
	var missing []string
	do := buildPrograms
	sandbox, err := sibling("elastic-sandbox")
	if err != nil {
		return Need{What: absent("elastic-sandbox"), Do: do}
	}
	for _, name := range []string{"elastic-queue", "elastic-gpu-scheduler", "elastic-gpu-agent", "elastic-gpu-arbiter"} {
		if _, err := sibling(name); err != nil {
			missing = append(missing, name)
		}
	}
	beside := filepath.Dir(sandbox)
	if _, err := os.Stat(filepath.Join(beside, "libelasticgpu.so")); err != nil {
		missing = append(missing, "libelasticgpu.so")
	}
	for _, name := range nodePrograms {
		if !isExecutable(filepath.Join(beside, "node", name)) {
			missing = append(missing, "node/"+name)
		}
	}
	if len(missing) > 0 {
		return Need{What: fmt.Sprintf("in %s there is no %s", beside, strings.Join(missing, ", ")), Do: do}
	}
	return Need{Met: true, What: "all programs are there"}
}

func cardsNeeded(ctx context.Context) Need {
	if _, err := sibling("elastic-gpu-agent"); err != nil { // which asks the driver
		return Need{What: absent("elastic-gpu-agent"), Do: buildPrograms}
	}
	cards, err := FindCards(ctx)
	if err != nil {
		return Need{What: err.Error(), Do: "install NVIDIA's driver; 'nvidia-smi' says whether it works"}
	}
	var models []string
	for _, c := range cards {
		models = append(models, fmt.Sprintf("%s (%d MiB)", c.Model, c.Memory))
	}
	return Need{Met: true, What: fmt.Sprintf("the driver has %d cards: %s", len(cards), strings.Join(models, ", "))}
}
