/*
 * Hooks of graphs. In a container that can be swapped, a node of memory is an empty one, with memory of ours in its place
 * (graph_memory.c). The driver's own are noted, and their memory is taken when their graph is instantiated.
 */
#include "compute_limit.h"
#include "driver_symbols.h"
#include "graph_memory.h"
#include "handlers.h"
#include "memory_budget.h"
#include "memory_calls.h"
#include "pools.h"
#include "start.h"
#include "streams.h"

#define NOTE_NODE(graph, d, bytes, call) do { \
	CUresult r_ = graph_note(graph, d, bytes); \
	return r_ == CUDA_SUCCESS ? (call) : r_; \
} while (0)

/* What the driver says is not needed any more is given back here, and whenever memory is asked for. */
static void settle(void)
{
	int pass_ = memory_call_enter();
	graph_memory_settle();
	memory_call_leave(pass_);
}

CUresult on_cuGraphDestroy(fn_cuGraphDestroy real, CUgraph graph)
{
	CUresult r;

	graph_forget(graph);
	graph_gone(graph);
	r = real(graph);
	settle();
	return r;
}

CUresult on_cuGraphClone(fn_cuGraphClone real, CUgraph *clone, CUgraph graph)
{
	CUresult r = real(clone, graph);

	if (r == CUDA_SUCCESS)
		graph_cloned(graph, *clone);
	return r;
}

/* ---- instances ---- */

static CUresult instantiated(CUresult r, CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	if (r == CUDA_SUCCESS)
		graph_made_exec(graph, *exec, flags & CU_GRAPH_AUTO_FREE_ON_LAUNCH);
	return r;
}

/* The driver looks at the memory that the nodes name: it must be there. */
#define INSTANTIATE(exec, graph, flags, call) do { \
	struct holding *of_ = graph_noted(graph); \
	int pass_; \
	CUresult r_; \
	if (of_ && of_->link && !memory_charge(of_->device, of_->link)) \
		return CUDA_ERROR_OUT_OF_MEMORY; \
	pass_ = memory_call_enter(); \
	r_ = (call); \
	memory_call_leave(pass_); \
	if (of_ && of_->link) \
		r_ = graph_instantiated(*(exec), of_, r_); \
	return instantiated(r_, exec, graph, flags); \
} while (0)

CUresult on_cuGraphInstantiate(fn_cuGraphInstantiate_v2 real, CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size)
{
	INSTANTIATE(exec, graph, 0, real(exec, graph, node, log, size));
}

CUresult on_cuGraphInstantiateWithFlags(fn_cuGraphInstantiateWithFlags real, CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	INSTANTIATE(exec, graph, flags, real(exec, graph, flags));
}

CUresult on_cuGraphInstantiateWithParams(fn_cuGraphInstantiateWithParams real, CUgraphExec *exec, CUgraph graph, void *params)
{
	INSTANTIATE(exec, graph, params ? *(unsigned long long *)params : 0, real(exec, graph, params)); /* the flags come first */
}

CUresult on_cuGraphExecUpdate(fn_cuGraphExecUpdate real, CUgraphExec exec, CUgraph graph, CUgraphNode *node, int *result)
{
	int pass_ = memory_call_enter();
	CUresult r = real(exec, graph, node, result);

	memory_call_leave(pass_);
	if (r == CUDA_SUCCESS)
		graph_updated_exec(graph, exec);
	return r;
}

CUresult on_cuGraphExecUpdate_v2(fn_cuGraphExecUpdate_v2 real, CUgraphExec exec, CUgraph graph, void *result)
{
	int pass_ = memory_call_enter();
	CUresult r = real(exec, graph, result);

	memory_call_leave(pass_);
	if (r == CUDA_SUCCESS)
		graph_updated_exec(graph, exec);
	return r;
}

CUresult on_cuGraphExecDestroy(fn_cuGraphExecDestroy real, CUgraphExec exec)
{
	struct device *d = graph_exec_forget(exec);
	CUresult r;

	graph_exec_gone(exec);
	r = real(exec);
	if (d)
		pools_refresh(d, false);
	settle();
	return r;
}

static CUresult launch(fn_cuGraphLaunch real, CUgraphExec exec, CUstream stream, CUstream its)
{
	LAUNCH(its, real(exec, stream));
}

/* Into a stream that is captured it is a part of that graph: nothing is launched yet. */
CUresult on_cuGraphLaunch(fn_cuGraphLaunch real, CUgraphExec exec, CUstream stream)
{
	CUstream its = real == real_cuGraphLaunch_ptsz ? own_stream(stream) : stream;
	bool captured = stream_capturing(its);
	CUresult r;

	if (!captured && !graph_may_launch(exec))
		return CUDA_ERROR_INVALID_VALUE;
	r = launch(real, exec, stream, its);
	if (r == CUDA_SUCCESS && !captured)
		graph_launched(exec);
	return r;
}

/* ---- nodes of memory ---- */

static struct device *device_of_node(const CUmemAllocNode *a)
{
	return a && library_start() ? device_of(a->pool.location.id) : NULL;
}

/* The empty node that is there already becomes one of memory of ours. */
static bool stand_in(struct device *d, CUgraphNode node, CUgraph graph, CUmemAllocNode *a)
{
	bool ours;

	int pass_ = memory_call_enter();
	ours = graph_alloc(d, graph, NULL, a->bytes, &a->ptr);
	memory_call_leave(pass_);
	if (ours)
		graph_note_node(node, graph, CU_GRAPH_NODE_MEM_ALLOC, a);
	else
		real_cuGraphDestroyNode(node);
	return ours;
}

static bool may_stand_in(const CUmemAllocNode *a)
{
	return atomic_load(&session.swap) && real_cuGraphAddEmptyNode && real_cuGraphDestroyNode && a->bytes && !a->pool.handle_types &&
		a->pool.type == CU_MEM_ALLOCATION_PINNED && a->pool.location.type == CU_MEM_LOCATION_DEVICE;
}

/* Adds an empty node with the call, and puts ours in its place. */
#define STAND_IN(d, node, graph, a, call) do { \
	if (may_stand_in(a)) { \
		CUresult made_ = (call); \
		if (made_ != CUDA_SUCCESS) \
			return made_; \
		if (stand_in(d, *(node), graph, a)) \
			return CUDA_SUCCESS; \
	} \
} while (0)

CUresult on_cuGraphAddMemAllocNode(fn_cuGraphAddMemAllocNode real, CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUmemAllocNode *params)
{
	struct device *d = device_of_node(params);

	if (!d || !node)
		return real(node, graph, deps, count, params);
	STAND_IN(d, node, graph, params, real_cuGraphAddEmptyNode(node, graph, deps, count));
	NOTE_NODE(graph, d, params->bytes, real(node, graph, deps, count, params));
}

static CUresult freed_by(CUgraphNode node, CUgraph graph, CUdeviceptr ptr)
{
	CUmemAllocNode of = {.ptr = ptr};
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	if (!graph_free(ptr, graph, NULL, &r) || r != CUDA_SUCCESS)
		real_cuGraphDestroyNode(node);
	else
		graph_note_node(node, graph, CU_GRAPH_NODE_MEM_FREE, &of);
	return r;
}

CUresult on_cuGraphAddMemFreeNode(fn_cuGraphAddMemFreeNode real, CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUdeviceptr ptr)
{
	CUresult r;

	if (!node || !graph_memory_owns(ptr))
		return real(node, graph, deps, count, ptr);
	r = real_cuGraphAddEmptyNode(node, graph, deps, count);
	return r == CUDA_SUCCESS ? freed_by(*node, graph, ptr) : r;
}

static void note_bodies(CUresult r, const CUgraphNodeParams *p)
{
	if (r != CUDA_SUCCESS || !p || p->type != CU_GRAPH_NODE_CONDITIONAL || !p->conditional.bodies)
		return;
	for (unsigned i = 0; i < p->conditional.size; i++)
		graph_is_body(p->conditional.bodies[i]);
}

/* The two functions for nodes of all types differ in their edges alone: CALL(params) is the driver's. */
#define ADD_NODE(CALL) do { \
	CUgraphNodeParams empty = {.type = CU_GRAPH_NODE_EMPTY}; \
	struct device *d = params && params->type == CU_GRAPH_NODE_MEM_ALLOC ? device_of_node(&params->alloc) : NULL; \
	CUresult r; \
	if (d && node) { \
		STAND_IN(d, node, graph, &params->alloc, CALL(&empty)); \
		NOTE_NODE(graph, d, params->alloc.bytes, CALL(params)); \
	} \
	if (params && node && params->type == CU_GRAPH_NODE_MEM_FREE && graph_memory_owns(params->freed)) { \
		r = CALL(&empty); \
		return r == CUDA_SUCCESS ? freed_by(*node, graph, params->freed) : r; \
	} \
	int pass_ = memory_call_enter(); \
	r = CALL(params); \
	memory_call_leave(pass_); \
	note_bodies(r, params); \
	return r; \
} while (0)

CUresult on_cuGraphAddNode(fn_cuGraphAddNode real, CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUgraphNodeParams *params)
{
#define CALL(p) real(node, graph, deps, count, p)
	ADD_NODE(CALL);
#undef CALL
}

CUresult on_cuGraphAddNode_v2(fn_cuGraphAddNode_v2 real, CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, const void *edges, size_t count, CUgraphNodeParams *params)
{
#define CALL(p) real(node, graph, deps, edges, count, p)
	ADD_NODE(CALL);
#undef CALL
}

CUresult on_cuGraphNodeGetType(fn_cuGraphNodeGetType real, CUgraphNode node, int *type)
{
	CUmemAllocNode params;

	return type && graph_node_params(node, type, &params) ? CUDA_SUCCESS : real(node, type);
}

CUresult on_cuGraphMemAllocNodeGetParams(fn_cuGraphMemAllocNodeGetParams real, CUgraphNode node, CUmemAllocNode *params)
{
	CUmemAllocNode ours;
	int type;

	if (!params || !graph_node_params(node, &type, &ours) || type != CU_GRAPH_NODE_MEM_ALLOC)
		return real(node, params);
	*params = ours;
	return CUDA_SUCCESS;
}

CUresult on_cuGraphMemFreeNodeGetParams(fn_cuGraphMemFreeNodeGetParams real, CUgraphNode node, CUdeviceptr *ptr)
{
	CUmemAllocNode ours;
	int type;

	if (!ptr || !graph_node_params(node, &type, &ours) || type != CU_GRAPH_NODE_MEM_FREE)
		return real(node, ptr);
	*ptr = ours.ptr;
	return CUDA_SUCCESS;
}

/* The driver removes no node of memory either. */
CUresult on_cuGraphDestroyNode(fn_cuGraphDestroyNode real, CUgraphNode node)
{
	CUmemAllocNode params;
	int type;

	return graph_node_params(node, &type, &params) ? CUDA_ERROR_NOT_SUPPORTED : real(node);
}

CUresult on_cuDeviceGraphMemTrim(fn_cuDeviceGraphMemTrim real, CUdevice dev)
{
	CUresult r = real(dev);
	struct device *d = r == CUDA_SUCCESS && library_start() ? device_of(dev) : NULL;

	if (d)
		pools_refresh(d, false);
	return r;
}
