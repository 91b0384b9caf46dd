package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// try is a share that is made by hand.
type try struct {
	cfg        v1alpha1.DevicePlugin
	card       int
	core       float64
	memory     int64
	parameters map[string]string
}

const tried = "try" // its slot

// triedUID stands for a pod's UID, in a share that is in no pod. No pod has one like it.
func triedUID(pid int) types.UID { return types.UID(fmt.Sprintf("%s-%d", tried, pid)) }

// ofTriedOrPod says whether a process is a pod's, or one of a command that is tried: for that, no cgroup tells.
func ofTriedOrPod(pid int, uid types.UID) (bool, error) {
	if strings.HasPrefix(string(uid), tried+"-") {
		return true, nil
	}
	return gpushare.InPod(pid, uid)
}

func tryCommand() *cobra.Command {
	t := try{cfg: v1alpha1.NewGPUAgentConfiguration().DevicePlugin, parameters: map[string]string{}}
	var backend string
	cmd := &cobra.Command{
		Use:   "try [flags] -- COMMAND...",
		Short: "Run a command with a share of a card, as a container would have it, without a cluster",
		Long: `Run a command on this machine with a share of a card: a backend makes it, the command
sees what a container would (files are mounted for it alone), and when it ends the
share is taken away. What the backend answered is printed first, as a CDI
specification. Linux and root.`,
		Example: `  # A MIG instance for as long as nvidia-smi takes to list it
  elastic-gpu-agent try --backend mig --core 14 -- nvidia-smi -L

  # A third of a card's compute and 16 GiB, by the preloaded library
  elastic-gpu-agent try --library libelasticgpu.so --core 30 --memory 16384 -- python train.py`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if backend != "" {
				t.parameters["backend"] = backend
			}
			return t.run(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&backend, "backend", "", "gpushare, whole, mig, ...; default: as for a container")
	flags.IntVar(&t.card, "card", 0, "index of the card")
	flags.Float64Var(&t.core, "core", 100, "percent of its compute")
	flags.Int64Var(&t.memory, "memory", 0, "MiB of its memory; default: all of it")
	flags.StringToStringVar(&t.parameters, "parameter", t.parameters, "parameter of a class, NAME=VALUE")
	flags.StringVar(&t.cfg.Library, "library", t.cfg.Library, "libelasticgpu.so, with elastic-gpu-arbiter beside it")
	flags.StringVar(&t.cfg.StateDir, "state-dir", "/var/lib/elastic-gpu-try", "folder for what is made")
	return cmd
}

func (t *try) run(cmd *cobra.Command, args []string) error {
	source, node, err := thisNode()
	if err != nil {
		return err
	}
	defer source.Close()
	cards, err := source.Cards(cmd.Context(), node)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(cards, func(c discovery.Card) bool { return c.Index == t.card })
	if at < 0 {
		return fmt.Errorf("this machine has %d cards, and none of index %d", len(cards), t.card)
	}
	part := share.Card{Card: cards[at], Percent: t.core, MemoryMB: t.memory}
	if part.MemoryMB == 0 {
		part.MemoryMB = part.Card.MemoryMB
	}
	t.cfg.CDIDir = filepath.Join(t.cfg.StateDir, "cdi")
	backends, err := (&agent.Node{Name: node.Name, Source: source, Config: t.cfg}).Backends()
	if err != nil {
		return err
	}
	self := slots.ContainerRef{Namespace: "local", Pod: tried, Container: "command"}
	held := map[string]slots.ContainerRef{tried: self}
	all := &slots.Slots{
		Dir: t.cfg.CDIDir, Backends: backends, Log: logr.Discard(),
		Containers: func(context.Context) (map[string]slots.ContainerRef, error) { return held, nil },
		Share: func(context.Context, slots.ContainerRef) (share.Share, error) {
			return share.Share{
				Pod: types.NamespacedName{Namespace: self.Namespace, Name: self.Pod}, UID: triedUID(os.Getpid()), Container: self.Container,
				Cards: []share.Card{part}, Parameters: t.parameters,
			}, nil
		},
		Gone: func(context.Context, *share.Share) (bool, error) { return true, nil },
	}
	if err := all.Fill(cmd.Context(), tried); err != nil {
		return err
	}
	stop := t.arbiter(cmd)
	err = t.command(cmd, args)
	stop()
	clear(held)
	return errors.Join(err, all.Clean(context.WithoutCancel(cmd.Context())))
}

// arbiter gives out turns as on a node, if it lies beside the library; without it the command limits itself.
func (t *try) arbiter(cmd *cobra.Command) (stop func()) {
	shares := filepath.Join(t.cfg.StateDir, "gpushare")
	if _, err := os.Stat(filepath.Join(shares, "shares", tried)); err != nil {
		return func() {} // another backend made the share
	}
	turns := exec.CommandContext(cmd.Context(), filepath.Join(filepath.Dir(t.cfg.Library), "elastic-gpu-arbiter"), shares)
	turns.Stderr = cmd.ErrOrStderr()
	if err := turns.Start(); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "no arbiter, so the command limits itself to its share:", err)
		return func() {}
	}
	return func() {
		_ = turns.Process.Kill()
		_ = turns.Wait()
	}
}

// command runs what was asked for with what the container runtime would apply.
func (t *try) command(cmd *cobra.Command, args []string) error {
	files, err := filepath.Glob(filepath.Join(t.cfg.CDIDir, "*.json"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("%d specifications in %s: %w", len(files), t.cfg.CDIDir, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	spec := specs.Spec{}
	if err := json.Unmarshal(data, &spec); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), strings.TrimSpace(string(data)))
	edits := spec.Devices[0].ContainerEdits
	targets, err := makeTargets(edits.Mounts)
	defer func() {
		for _, path := range slices.Backward(targets) {
			_ = os.Remove(path)
		}
	}()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	inner := exec.CommandContext(cmd.Context(), self, append([]string{"apply-edits", files[0], "--"}, args...)...)
	inner.Stdin, inner.Stdout, inner.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	inner.Env = append(os.Environ(), edits.Env...)
	inner.SysProcAttr = mountsOfItsOwn()
	return inner.Run()
}

// makeTargets makes what is mounted on where it is missing, and says what it made. What lies in another
// mount is made there.
func makeTargets(mounts []*specs.Mount) (made []string, err error) {
	for i, m := range mounts {
		if slices.ContainsFunc(mounts[:i], func(o *specs.Mount) bool { return strings.HasPrefix(m.ContainerPath, o.ContainerPath+"/") }) {
			continue
		}
		var missing []string
		for path := m.ContainerPath; ; path = filepath.Dir(path) {
			if _, err := os.Stat(path); err == nil {
				break
			}
			missing = append(missing, path)
		}
		slices.Reverse(missing)
		made = append(made, missing...)
		if err := makeTarget(m); err != nil {
			return made, err
		}
	}
	return made, nil
}

// makeTarget makes a file for a file and a folder for a folder, unless it is there.
func makeTarget(m *specs.Mount) error {
	if _, err := os.Stat(m.ContainerPath); err == nil {
		return nil
	}
	source, err := os.Stat(m.HostPath)
	if err != nil {
		return err
	}
	if source.IsDir() {
		return os.MkdirAll(m.ContainerPath, 0o755) //nolint:gosec // as a container's folders are
	}
	if err := os.MkdirAll(filepath.Dir(m.ContainerPath), 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	return os.WriteFile(m.ContainerPath, nil, 0o600)
}
