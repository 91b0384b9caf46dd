/* Stream-ordered pools and the memory of graphs. */
#ifndef ELASTIC_POOLS_H
#define ELASTIC_POOLS_H

#include <stdbool.h>
#include <stdint.h>
#include "ledger.h"
#include "session.h"

/* Charges what the driver has reserved now; trim: what it has reserved and does not use is let go first. */
void pools_refresh(struct device *d, bool trim);
void pools_trim(struct device *d);
void pool_created(CUmemPool pool, struct device *d);
/* The device of a pool; d if the pool is not known yet. */
struct device *pool_device(CUmemPool pool, struct device *d);
/* Charges an allocation from a pool before the driver makes it; NULL if it does not fit. pool_took ends both. */
struct holding *pool_take(CUmemPool pool, struct device *d, uint64_t bytes);
CUresult pool_took(struct holding *h, CUresult r, CUdeviceptr ptr, CUstream stream);
/* The driver's cuMemPoolDestroy, in step with the pool's charge. */
CUresult pool_destroy(CUresult (*real)(CUmemPool), CUmemPool pool);

/* Notes memory that a graph, or a stream that is captured into one, will need; refused if it can never fit. */
CUresult graph_note(void *graph, struct device *d, uint64_t bytes);
/* What was noted for a stream while it was captured goes to the graph that came of it. */
void graph_captured(CUstream stream, CUgraph graph);
/* What was noted for a graph; NULL if nothing. */
struct holding *graph_noted(CUgraph graph);
/* Ends an instantiation whose memory was charged before it. */
CUresult graph_instantiated(CUgraphExec exec, struct holding *of, CUresult r);
void graph_forget(CUgraph graph);
/* The device whose memory the graph's instance needed; NULL if none. */
struct device *graph_exec_forget(CUgraphExec exec);

#endif
