//go:build !cgo

package discovery

import "errors"

// NVML is not there: the driver's library is loaded by cgo. What is built without it serves simulated nodes, and nodes whose
// containers use cards of others.
type NVML struct{ None }

// OpenNVML says so.
func OpenNVML(string) (*NVML, error) {
	return nil, errors.New("this elastic-gpu-agent was built without cgo, and cannot load the NVIDIA driver: build it with a C compiler (make build)")
}

// Close nothing.
func (*NVML) Close() {}
