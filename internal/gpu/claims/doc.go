// Package claims gives ElasticGPUClaims their ElasticGPUs and takes them back.
//
//	claim ── its own by name, or made for it ──> ElasticGPU
//	      ── a free one of its class ──────────> ElasticGPU
//	      ── none: its class's provisioner ────> makes one
//
// A class that binds Immediate has this done at once; one that waits for the first consumer, when a
// pod that uses the claim is bound to a node. Provisioners in tree take cards from the placement
// engine. One out of tree watches for claims that carry its name in the annotation
// elasticgpu.io/provisioner (and, if the class waits, the node in elasticgpu.io/selected-node), and
// creates an ElasticGPU with a claimRef; nothing else is needed.
//
// A claim stays as long as scheduled pods use it. When it has gone, its ElasticGPU is deleted or
// retained as its reclaim policy says.
//
// Words: docs/design/glossary.md.
package claims
