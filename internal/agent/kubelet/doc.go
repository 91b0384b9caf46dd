// Package kubelet is the agent's side of the kubelet: a device plugin whose devices are slots (device_plugin.go),
// and the question which container has which (pod_resources.go).
//
// What pods ask for in percent and MiB is counted by the scheduler and written in the node's capacity;
// to the kubelet a container with cards has one device, whatever it asks for. So messages stay small:
// a device per MiB would be a million and a half on eight cards of 192 GB.
//
// Words: docs/design/glossary.md.
package kubelet
