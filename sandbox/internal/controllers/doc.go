// Package controllers runs the controllers of kube-controller-manager that a sandbox needs, each with its own service
// account, as there.
//
//	controllers.go  what they share: clients, informers, the order in which all start and end
//	table.go        which they are, and how each is made
//	podgc.go        pods of nodes that are gone
//
// The controllers are Kubernetes' own. kube-controller-manager's command is not used: it brings volume plugins and half a
// kubelet, which is a tenth of what the sandbox would compile, and most of that serves nobody here. docs/sandbox.md lists
// what is left out.
package controllers
