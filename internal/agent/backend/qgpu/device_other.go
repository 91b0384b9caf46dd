//go:build !linux

package qgpu

import (
	"fmt"

	"tags.cncf.io/container-device-interface/specs-go"
)

// deviceAt is for nodes, which are Linux.
func deviceAt(_, path string) (*specs.DeviceNode, error) {
	return nil, fmt.Errorf("%s: devices are given to containers on Linux alone", path)
}
