// Package kubelet plays the kubelets of a sandbox: nodes that are Ready, pods
// that start, run for a while, end, and have logs, without a container anywhere.
//
// Nodes are run by KWOK's node and lease controllers under the stages in
// stages/. They take every node with the annotation kwok.x-k8s.io/node: fake, so
// nodes created by others are played as well, and real nodes are left alone.
//
// Pods have a lifecycle of their own here rather than stages: the time a pod runs
// is counted from its start, whatever is written to the pod meanwhile and
// however often the sandbox restarts. What happens next to a pod is decided by
// one pure function, next, from the pod and the time; the rest carries it out.
package kubelet
