/* Hooks of graphs: a node's memory is noted, and taken when its graph is instantiated. */
#include "handlers.h"
#include "memory_budget.h"
#include "pools.h"
#include "start.h"

#define NOTE_NODE(graph, d, bytes, call) do { \
	CUresult r_ = graph_note(graph, d, bytes); \
	return r_ == CUDA_SUCCESS ? (call) : r_; \
} while (0)

CUresult on_cuGraphDestroy(fn_cuGraphDestroy real, CUgraph graph)
{
	graph_forget(graph);
	return real(graph);
}

#define INSTANTIATE(exec, graph, call) do { \
	struct holding *of_ = graph_noted(graph); \
	if (!of_ || !of_->link) \
		return (call); \
	if (!memory_charge(of_->device, of_->link)) \
		return CUDA_ERROR_OUT_OF_MEMORY; \
	return graph_instantiated(*(exec), of_, (call)); \
} while (0)

CUresult on_cuGraphInstantiate(fn_cuGraphInstantiate_v2 real, CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size)
{
	INSTANTIATE(exec, graph, real(exec, graph, node, log, size));
}

CUresult on_cuGraphInstantiateWithFlags(fn_cuGraphInstantiateWithFlags real, CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	INSTANTIATE(exec, graph, real(exec, graph, flags));
}

CUresult on_cuGraphInstantiateWithParams(fn_cuGraphInstantiateWithParams real, CUgraphExec *exec, CUgraph graph, void *params)
{
	INSTANTIATE(exec, graph, real(exec, graph, params));
}

CUresult on_cuGraphAddMemAllocNode(fn_cuGraphAddMemAllocNode real, CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUmemAllocNode *params)
{
	struct device *d = params && library_start() ? device_of(params->pool.location.id) : NULL;

	if (!d)
		return real(node, graph, deps, count, params);
	NOTE_NODE(graph, d, params->bytes, real(node, graph, deps, count, params));
}

static struct device *node_device(const CUgraphNodeParams *p)
{
	return p && p->type == CU_GRAPH_NODE_MEM_ALLOC && library_start() ? device_of(p->alloc.pool.location.id) : NULL;
}

CUresult on_cuGraphAddNode(fn_cuGraphAddNode real, CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUgraphNodeParams *params)
{
	struct device *d = node_device(params);

	if (!d)
		return real(node, graph, deps, count, params);
	NOTE_NODE(graph, d, params->alloc.bytes, real(node, graph, deps, count, params));
}

CUresult on_cuGraphAddNode_v2(fn_cuGraphAddNode_v2 real, CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, const void *edges, size_t count, CUgraphNodeParams *params)
{
	struct device *d = node_device(params);

	if (!d)
		return real(node, graph, deps, edges, count, params);
	NOTE_NODE(graph, d, params->alloc.bytes, real(node, graph, deps, edges, count, params));
}

CUresult on_cuGraphExecDestroy(fn_cuGraphExecDestroy real, CUgraphExec exec)
{
	struct device *d = graph_exec_forget(exec);
	CUresult r = real(exec);

	if (d)
		pools_refresh(d, false);
	return r;
}

CUresult on_cuDeviceGraphMemTrim(fn_cuDeviceGraphMemTrim real, CUdevice dev)
{
	CUresult r = real(dev);
	struct device *d = r == CUDA_SUCCESS && library_start() ? device_of(dev) : NULL;

	if (d)
		pools_refresh(d, false);
	return r;
}
