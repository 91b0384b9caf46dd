// Package qgpu gives containers qGPU devices: files that the qGPU driver of the node has made, which an
// ElasticGPU names. What holds the container to its share is behind them.
//
// Words: docs/design/glossary.md.
package qgpu
