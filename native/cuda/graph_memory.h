/*
 * Memory of graphs that can be moved: in the place of an allocation that the driver would make at each launch stands
 * memory of ours, which is there as long as a graph or an instance of one has its address.
 */
#ifndef ELASTIC_GRAPH_MEMORY_H
#define ELASTIC_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include "session.h"

/* The stream: that is captured into the graph; NULL: by a node. False if there is none to be had: then it is the driver's. */
bool graph_alloc(struct device *d, CUgraph graph, CUstream stream, uint64_t bytes, CUdeviceptr *ptr);
/* It is freed in that graph, on that stream or by a node; false if it is not memory of this kind. */
bool graph_free(CUdeviceptr ptr, CUgraph graph, CUstream stream, CUresult *r);
/* The program frees it; false if it is not memory of this kind. */
bool graph_memory_free(CUdeviceptr ptr, CUresult *r);
bool graph_memory_owns(CUdeviceptr ptr);
/* The graph into which a stream is captured; NULL if there is none. */
CUgraph graph_of_capture(CUstream stream);
/* What comes next on this stream does not come after what was before. */
void graph_stream_reordered(CUstream stream);
void graph_capture_ended(CUgraph graph);

/* What a launch allocates and frees, so that the next one knows: of a graph, and of its instances and clones. */
void graph_cloned(CUgraph graph, CUgraph clone);
void graph_made_exec(CUgraph graph, CUgraphExec exec, bool auto_free);
void graph_updated_exec(CUgraph graph, CUgraphExec exec);
void graph_gone(CUgraph graph);
void graph_exec_gone(CUgraphExec exec);
/* False: a launch would allocate what is still allocated. */
bool graph_may_launch(CUgraphExec exec);
void graph_launched(CUgraphExec exec);
/* The body of a conditional node: what it retains nobody documents, so its memory is the driver's. */
void graph_is_body(CUgraph graph);

/* Nodes that stand for the driver's nodes of memory. */
void graph_note_node(CUgraphNode node, CUgraph graph, int type, const CUmemAllocNode *params);
bool graph_node_params(CUgraphNode node, int *type, CUmemAllocNode *params);

/* Lets go of what no graph has any more. */
void graph_memory_settle(void);
void graph_memory_forget_context(CUcontext ctx);
void graph_memory_fork_child(void);

#endif
