// Package realnode is a node whose pods are real containers: a kubelet, containerd and runc beside the
// control plane, on Linux, as root.
//
//	node.go       the life of it: configure, start, wait until it is ready, stop, clean up
//	configs.go    what containerd, the kubelet and the pod network read
//	namespace.go  mounts of its own, in which the kubelet's folder is ours
//	supervisor.go processes that are started again when they end, and end with us
//	host.go       this machine's own root as an image
//	image.go      container images made of files, for machines without a registry
//	clean.go      what pods leave on the machine
//	leftovers.go  what a node leaves that was killed, or whose machine went down
//
// Everything lies below one folder, but for the cgroup and the bridge that bear its name.
package realnode
