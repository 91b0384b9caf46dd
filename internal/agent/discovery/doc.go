// Package discovery finds cards: the real ones through NVIDIA's management
// library (nvml.go), or those that a simulated node claims to have
// (simulated.go).
//
// Words: docs/design/glossary.md.
package discovery
