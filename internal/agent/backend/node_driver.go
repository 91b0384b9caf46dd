package backend

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/share"
)

// NodeDriver takes what containers must see from the node's own CDI specification of its cards, which
// the driver's toolkit writes ("nvidia-ctk cdi generate"). Without one it gives the device nodes alone,
// for images that bring the driver's libraries or nodes that mount them otherwise.
type NodeDriver struct {
	// CDIDirs are looked through in order; Kind is the cards' there.
	CDIDirs []string
	Kind    string
	// Root stands before device paths when they are looked for; for tests.
	Root string
}

// shared device nodes of NVIDIA's driver, beside a card's own.
var sharedNodes = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}

// Edits for the cards of a share.
func (d *NodeDriver) Edits(s *share.Share) (*specs.ContainerEdits, error) {
	spec, err := d.find()
	if err != nil {
		return nil, err
	}
	edits := &specs.ContainerEdits{}
	if spec != nil {
		join(edits, &spec.ContainerEdits)
	}
	for _, card := range s.Cards {
		i := -1
		if spec != nil {
			i = slices.IndexFunc(spec.Devices, func(dev specs.Device) bool {
				return dev.Name == card.UUID || dev.Name == strconv.Itoa(card.Index)
			})
		}
		switch {
		case i >= 0:
			join(edits, &spec.Devices[i].ContainerEdits)
		case card.Path != "":
			join(edits, &specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: card.Path}}})
		}
	}
	for _, node := range sharedNodes {
		if _, err := os.Stat(filepath.Join(d.Root, node)); err == nil {
			join(edits, &specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: node}}})
		}
	}
	return edits, nil
}

func (d *NodeDriver) find() (*specs.Spec, error) {
	for _, dir := range d.CDIDirs {
		for _, pattern := range []string{"*.yaml", "*.json"} {
			files, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				return nil, err
			}
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					return nil, err
				}
				if data, err = yaml.YAMLToJSON(data); err != nil {
					return nil, fmt.Errorf("%s: %w", file, err)
				}
				spec := &specs.Spec{}
				if err := json.Unmarshal(data, spec); err != nil {
					return nil, fmt.Errorf("%s: %w", file, err)
				}
				if spec.Kind == d.Kind {
					return spec, nil
				}
			}
		}
	}
	return nil, nil
}

// join adds what is not there yet.
func join(to, more *specs.ContainerEdits) {
	to.Env = append(to.Env, more.Env...)
	to.Hooks = append(to.Hooks, more.Hooks...)
	to.AdditionalGIDs = append(to.AdditionalGIDs, more.AdditionalGIDs...)
	for _, n := range more.DeviceNodes {
		if !slices.ContainsFunc(to.DeviceNodes, func(m *specs.DeviceNode) bool { return m.Path == n.Path }) {
			to.DeviceNodes = append(to.DeviceNodes, n)
		}
	}
	for _, m := range more.Mounts {
		if !slices.ContainsFunc(to.Mounts, func(o *specs.Mount) bool { return o.ContainerPath == m.ContainerPath }) {
			to.Mounts = append(to.Mounts, m)
		}
	}
}
