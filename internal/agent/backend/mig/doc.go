// Package mig gives containers instances of a card (NVIDIA's MIG): parts with memory and compute of
// their own, which no program can leave. They are made for a share and destroyed after it.
//
//	mig.go       the backend
//	profiles.go  which profile is large enough, and where on the card it leaves the most space
//
// An instance is known by where it is on its card, and that is written down before it is made: an agent
// that dies in between finds it again. Instances that others made are left alone.
//
// Words: docs/design/glossary.md.
package mig
