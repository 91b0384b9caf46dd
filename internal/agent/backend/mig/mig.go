//go:build cgo

package mig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Backend of MIG instances.
type Backend struct {
	Driver backend.Driver
	// Lib is initialized.
	Lib nvml.Interface
	// Dir is ours alone.
	Dir string
	// Root stands before /proc; for tests.
	Root string
}

// Name by which classes choose it.
func (*Backend) Name() string { return "mig" }

// instance of a share on a card.
type instance struct {
	Card    string // its UUID
	Profile int    // as NVML numbers them
	Name    string // as people do: 1g.18gb
	Start   uint32
	Size    uint32
}

// Prepare makes an instance on each card of the share.
func (b *Backend) Prepare(_ context.Context, s *share.Share) (*specs.ContainerEdits, error) {
	var record []instance
	if err := backend.Recall(b.path("shares"), s.ID, &record); err != nil {
		return nil, err
	}
	if !b.suits(record, s) {
		if err := b.release(s.ID); err != nil {
			return nil, err
		}
		var err error
		if record, err = b.choose(s); err != nil {
			return nil, err
		}
		if err := backend.Record(b.path("shares"), s.ID, record); err != nil {
			return nil, err
		}
	}
	edits, err := b.Driver.Edits(s)
	if err != nil {
		return nil, err
	}
	var visible []string
	for _, i := range record {
		uuid, nodes, err := b.make(i)
		if err != nil {
			return nil, err
		}
		visible = append(visible, uuid)
		edits.DeviceNodes = append(edits.DeviceNodes, nodes...)
	}
	edits.Env = append(edits.Env, "CUDA_VISIBLE_DEVICES="+strings.Join(visible, ","), "NVIDIA_VISIBLE_DEVICES="+strings.Join(visible, ","))
	return edits, nil
}

// suits says whether what was written down for a slot is what the share needs.
func (b *Backend) suits(record []instance, s *share.Share) bool {
	if len(record) != len(s.Cards) {
		return false
	}
	for i := range record {
		device, ret := b.Lib.DeviceGetHandleByUUID(record[i].Card)
		if ret != nvml.SUCCESS || record[i].Card != s.Cards[i].UUID {
			return false
		}
		profile, err := wanted(device, s.Cards[i], s.Parameters["profile"])
		if err != nil || profile.number != record[i].Profile {
			return false
		}
		if chosen := s.Cards[i].Instance; chosen != nil && chosen.Start != record[i].Start {
			return false
		}
	}
	return true
}

// choose a profile and a place on each card.
func (b *Backend) choose(s *share.Share) ([]instance, error) {
	var record []instance
	for _, card := range s.Cards {
		device, ret := b.Lib.DeviceGetHandleByUUID(card.UUID)
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("card %d: %w", card.Index, ret)
		}
		if err := b.enable(card.UUID, device); err != nil {
			return nil, fmt.Errorf("card %d: %w", card.Index, err)
		}
		profile, err := wanted(device, card, s.Parameters["profile"])
		if err != nil {
			return nil, fmt.Errorf("card %d: %w", card.Index, err)
		}
		place, err := placeFor(device, profile, card.Instance)
		if err != nil {
			return nil, fmt.Errorf("card %d: %w", card.Index, err)
		}
		record = append(record, instance{Card: card.UUID, Profile: profile.number, Name: profile.name, Start: place.Start, Size: place.Size})
	}
	return record, nil
}

// enable MIG on a card that is not used; what we switched on we switch off after the last instance.
func (b *Backend) enable(uuid string, device nvml.Device) error {
	now, _, ret := device.GetMigMode()
	switch {
	case ret == nvml.ERROR_NOT_SUPPORTED:
		return errors.New("it cannot be divided into MIG instances")
	case ret != nvml.SUCCESS:
		return fmt.Errorf("its MIG mode: %w", ret)
	case now == nvml.DEVICE_MIG_ENABLE:
		return nil
	}
	if users, ret := device.GetComputeRunningProcesses(); ret != nvml.SUCCESS || len(users) > 0 {
		return fmt.Errorf("MIG is off, and %d programs use the card: when they have ended it is switched on", len(users))
	}
	if err := os.MkdirAll(b.path("cards"), 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(b.path("cards", uuid), nil, 0o600); err != nil {
		return err
	}
	if now, ret := device.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS || now != nvml.SUCCESS {
		return fmt.Errorf("switching MIG on: %w, %w (on some cards that takes 'nvidia-smi --gpu-reset')", ret, now)
	}
	return nil
}

// make the instance unless it is there, and say how a container reaches it.
func (b *Backend) make(i instance) (uuid string, nodes []*specs.DeviceNode, err error) {
	device, ret := b.Lib.DeviceGetHandleByUUID(i.Card)
	if ret != nvml.SUCCESS {
		return "", nil, fmt.Errorf("card %s: %w", i.Card, ret)
	}
	info, ret := device.GetGpuInstanceProfileInfo(i.Profile)
	if ret != nvml.SUCCESS {
		return "", nil, fmt.Errorf("profile %s: %w", i.Name, ret)
	}
	gpu, err := find(device, i)
	if err != nil {
		return "", nil, err
	}
	if gpu == nil {
		if gpu, ret = device.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: i.Start, Size: i.Size}); ret != nvml.SUCCESS {
			return "", nil, fmt.Errorf("making %s at %d: %w", i.Name, i.Start, ret)
		}
	}
	about, ret := gpu.GetInfo()
	if ret != nvml.SUCCESS {
		return "", nil, fmt.Errorf("instance %s: %w", i.Name, ret)
	}
	compute, err := computeOf(gpu)
	if err != nil {
		return "", nil, fmt.Errorf("instance %s: %w", i.Name, err)
	}
	if uuid, err = deviceOf(device, int(about.Id), compute); err != nil {
		return "", nil, fmt.Errorf("instance %s: %w", i.Name, err)
	}
	minor, ret := device.GetMinorNumber()
	if ret != nvml.SUCCESS {
		return "", nil, fmt.Errorf("card %s: %w", i.Card, ret)
	}
	at := fmt.Sprintf("/proc/driver/nvidia/capabilities/gpu%d/mig/gi%d", minor, about.Id)
	for _, file := range []string{at + "/access", fmt.Sprintf("%s/ci%d/access", at, compute)} {
		node, err := b.capability(file)
		if err != nil {
			return "", nil, fmt.Errorf("instance %s: %w", i.Name, err)
		}
		nodes = append(nodes, node)
	}
	return uuid, nodes, nil
}

// capability is the device node that a file of the driver's names.
func (b *Backend) capability(file string) (*specs.DeviceNode, error) {
	data, err := os.ReadFile(filepath.Join(b.Root, file))
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		if value, ok := bytes.CutPrefix(line, []byte("DeviceFileMinor:")); ok {
			minor, err := strconv.Atoi(string(bytes.TrimSpace(value)))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			return &specs.DeviceNode{Path: fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor)}, nil
		}
	}
	return nil, fmt.Errorf("%s names no device", file)
}

// Release destroys the share's instances.
func (b *Backend) Release(_ context.Context, id string) error { return b.release(id) }

func (b *Backend) release(id string) error {
	var record []instance
	if err := backend.Recall(b.path("shares"), id, &record); err != nil {
		return err
	}
	for _, i := range record {
		device, ret := b.Lib.DeviceGetHandleByUUID(i.Card)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue // the card has gone, and the instance with it
		}
		if ret != nvml.SUCCESS {
			return fmt.Errorf("card %s: %w", i.Card, ret)
		}
		gpu, err := find(device, i)
		if err != nil {
			return err
		}
		if gpu != nil {
			if err := destroy(gpu); err != nil {
				return fmt.Errorf("instance %s: %w", i.Name, err)
			}
		}
		if err := b.disable(i.Card, device); err != nil {
			return err
		}
	}
	return backend.Forget(b.path("shares"), id)
}

// disable MIG on a card that we switched it on for, once it has no instances.
func (b *Backend) disable(uuid string, device nvml.Device) error {
	ours := b.path("cards", uuid)
	if _, err := os.Stat(ours); err != nil {
		return nil
	}
	left, err := instances(device)
	if err != nil || len(left) > 0 {
		return err
	}
	if now, ret := device.SetMigMode(nvml.DEVICE_MIG_DISABLE); ret != nvml.SUCCESS || now != nvml.SUCCESS {
		return fmt.Errorf("switching MIG off on card %s: %w, %w", uuid, ret, now)
	}
	return os.Remove(ours)
}

// Held lists the shares that are written down.
func (b *Backend) Held(context.Context) ([]string, error) { return backend.Recorded(b.path("shares")) }

func (b *Backend) path(names ...string) string {
	return filepath.Join(append([]string{b.Dir}, names...)...)
}
