// Package qgpu gives containers qGPU devices: device nodes that the qGPU driver of the node has made, which an
// ElasticGPU names. What holds the container to its share is behind them. Whoever may write an ElasticGPU names any
// path: only those of an allow-list that are devices, and not links, are given.
//
// Words: docs/design/glossary.md.
package qgpu
