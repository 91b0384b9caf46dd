// Package slots writes down what containers on this node have: for each a slot, which is a device to the
// kubelet and a CDI specification to the container runtime.
//
// A slot is empty until its container is about to start. Only then is it known which container that is: the
// kubelet has recorded which container has which device, so the answer is certain however many pods start at
// once. This package has no state in memory: the kubelet knows which container has which slot, the pods'
// annotations say what they have, and what was made is on the disk.
//
// Words: docs/design/glossary.md.
package slots
