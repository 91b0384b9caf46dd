// Package qgpu gives containers qGPU devices: device nodes that the qGPU driver of the node has made, which an
// ElasticGPU names. What holds the container to its share is behind them. An ElasticGPU can name any path:
// only device nodes of an allow-list, and no links, are given to a container.
//
// Words: docs/design/glossary.md.
package qgpu
