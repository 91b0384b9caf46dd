// Package controlplane runs etcd, kube-apiserver, kube-scheduler and Kubernetes'
// controllers (package controllers) inside this process.
//
// The components' own commands are not used: each of them installs a signal
// handler that may be installed once per process. Instead their options are
// filled from the same flags a real cluster passes, and their Run functions are
// called under one context. Feature gates, logging and metrics are process-wide
// in Kubernetes, so a process runs one control plane, once.
//
// Every listener is opened here and handed over, so no port is ever guessed.
package controlplane
