/* Memory of graphs goes out and comes back, and is there as long as the driver's would be, through the library, against the tests' driver. */
#include "calls.h"
#include "moves.h"
#include "../blocks.h"
#include "../graph_memory.h"

#define WORDS (2 * MiB / 8)
#define STEP_BYTES (20 * MiB)

/* to[i] = from[i] + add, and a graph that is launched does it again. */
static void add_body(void **p)
{
	uint64_t *to = *(uint64_t **)p[0], *from = *(uint64_t **)p[1];

	for (uint64_t i = 0; i < WORDS; i++)
		to[i] = from[i] + *(uint64_t *)p[2];
}
static struct stub_kernel add_kernel = {1000, add_body};

static void add(CUdeviceptr to, CUdeviceptr from, uint64_t n, CUstream s)
{
	void *params[] = {&to, &from, &n};
	EQUAL(cuLaunchKernel((CUfunction)&add_kernel, 1, 1, 1, 1, 1, 1, 0, s, params, NULL), 0);
}

static uint64_t word(CUdeviceptr p, uint64_t i) { return ((uint64_t *)(uintptr_t)p)[i]; }

static void begin_graphs(void)
{
	begin_swap();
	*(int *)driver("stub_args") = 3;
	EQUAL(real_cuStreamCreate(&stream, 1), 0);
}

static CUgraph graph_made(void)
{
	CUgraph g;
	EQUAL(((CUresult (*)(CUgraph *, unsigned))driver("cuGraphCreate"))(&g, 0), 0);
	return g;
}

static CUgraphExec instance(CUgraph g, unsigned flags)
{
	CUgraphExec x;
	EQUAL(cuGraphInstantiateWithFlags(&x, g, flags), 0);
	return x;
}

static void captured_memory_goes_out_and_comes_back(void)
{
	CUdeviceptr x, res, a, b, again;
	CUgraphExec exec;

	begin_graphs();
	EQUAL(cuMemAlloc_v2(&x, STEP_BYTES), 0);
	EQUAL(cuMemAlloc_v2(&res, STEP_BYTES), 0);
	fill(x, STEP_BYTES, 1);
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuMemAllocAsync(&a, STEP_BYTES, stream), 0);
	add(a, x, 5, stream);
	EQUAL(cuMemAllocAsync(&b, STEP_BYTES, stream), 0);
	add(b, a, 7, stream);
	EQUAL(cuMemFreeAsync(a, stream), 0);
	EQUAL(cuMemFreeAsync(a, stream), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuMemAllocAsync(&again, STEP_BYTES, stream), 0);
	EQUAL(again, a); /* it comes after what was freed */
	add(again, b, 9, stream);
	add(x, again, 0, stream);
	EQUAL(cuMemFreeAsync(again, stream), 0);
	EQUAL(cuMemFreeAsync(b, stream), 0);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	exec = instance(graph, 0);
	EQUAL(used(), CONTEXT + 4 * STEP_BYTES);
	EQUAL(stub_card_used(0), used());
	CHECK(!swap_refusal());
	uint64_t first = word(x, 0);
	for (unsigned round = 0; round < 10; round++) {
		EQUAL(cuGraphLaunch(exec, stream), 0);
		out();
		EQUAL(stub_card_used(0), CONTEXT);
		EQUAL(used(), CONTEXT + 4 * STEP_BYTES);
		in();
		EQUAL(word(x, 0), first + 21 * (round + 1));
		EQUAL(word(b, 0), first + 21 * round + 12); /* what the graph has left there came back, too */
	}
	EQUAL(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE); /* the graph has freed it */
	EQUAL(cuGraphDestroy(graph), 0);
	EQUAL(used(), CONTEXT + 4 * STEP_BYTES);
	EQUAL(cuGraphLaunch(exec, stream), 0);
	EQUAL(cuGraphExecDestroy(exec), 0);
	EQUAL(used(), CONTEXT + 2 * STEP_BYTES);
	EQUAL(cuMemFree_v2(x), 0);
	EQUAL(cuMemFree_v2(res), 0);
	EQUAL(stub_card_used(0), CONTEXT);
	CHECK(!blocks);
}

/* Allocated by a graph, and freed by the program: it outlives graph and instance, and is allocated once at a time. */
static void what_the_program_frees_lives_until_then(void)
{
	CUdeviceptr in, p;
	CUgraphExec exec, automatic;

	begin_graphs();
	EQUAL(cuMemAlloc_v2(&in, STEP_BYTES), 0);
	fill(in, STEP_BYTES, 1);
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuMemAllocAsync(&p, STEP_BYTES, stream), 0);
	add(p, in, 3, stream);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	EQUAL(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE); /* no launch has allocated it */
	exec = instance(graph, 0);
	EQUAL(cuGraphLaunch(exec, stream), 0);
	EQUAL(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
	out_and_in();
	EQUAL(cuMemFreeAsync(p, stream), 0);
	EQUAL(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuGraphLaunch(exec, stream), 0);
	EQUAL(cuMemFree_v2(p), 0);
	automatic = instance(graph, CU_GRAPH_AUTO_FREE_ON_LAUNCH);
	for (int i = 0; i < 3; i++)
		EQUAL(cuGraphLaunch(automatic, stream), 0);
	EQUAL(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuGraphExecDestroy(automatic), 0);
	EQUAL(cuGraphExecDestroy(exec), 0);
	EQUAL(cuGraphDestroy(graph), 0);
	EQUAL(used(), CONTEXT + 2 * STEP_BYTES); /* it is allocated */
	out_and_in();
	EQUAL(word(p, 0), word(in, 0) + 3);
	EQUAL(cuMemFreeAsync(p, stream), 0);
	EQUAL(used(), CONTEXT + STEP_BYTES);
	EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
}

static void one_graph_allocates_and_another_frees(void)
{
	CUgraph frees;
	CUgraphExec one, two;
	CUdeviceptr p;

	begin_graphs();
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuMemAllocAsync(&p, STEP_BYTES, stream), 0);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuMemFreeAsync(p, stream), 0);
	EQUAL(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuStreamEndCapture(stream, &frees), 0);
	one = instance(graph, 0);
	two = instance(frees, 0);
	for (int i = 0; i < 3; i++) {
		EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
		EQUAL(cuGraphLaunch(one, stream), 0);
		EQUAL(cuGraphLaunch(one, stream), CUDA_ERROR_INVALID_VALUE);
		out_and_in();
		EQUAL(cuGraphLaunch(two, stream), 0);
	}
	EQUAL(cuGraphLaunch(one, stream), 0);
	EQUAL(cuGraphExecDestroy(one), 0);
	EQUAL(cuGraphDestroy(graph), 0);
	EQUAL(used(), CONTEXT + STEP_BYTES);
	EQUAL(cuGraphLaunch(two, stream), 0);
	EQUAL(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE); /* once is enough */
	EQUAL(cuGraphExecDestroy(two), 0);
	EQUAL(used(), CONTEXT);
	EQUAL(cuGraphDestroy(frees), 0);
	EQUAL(stub_card_used(0), CONTEXT);
}

static void added_nodes_are_answered_for(void)
{
	CUmemAllocNode a = {.pool = {.type = CU_MEM_ALLOCATION_PINNED, .location = {CU_MEM_LOCATION_DEVICE, 0}}, .bytes = STEP_BYTES}, got;
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_MEM_ALLOC}, of_free = {.type = CU_GRAPH_NODE_MEM_FREE}, none = {.type = CU_GRAPH_NODE_EMPTY};
	CUgraphNode node, second, empty, gone;
	CUgraphExec exec;
	CUdeviceptr ptr;
	int type;

	begin_graphs();
	graph = graph_made();
	EQUAL(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &a), 0);
	params.alloc = a;
	params.alloc.bytes = 2 * STEP_BYTES;
	EQUAL(cuGraphAddNode_v2(&second, graph, &node, NULL, 1, &params), 0);
	CHECK(a.ptr && params.alloc.ptr && a.ptr != params.alloc.ptr);
	EQUAL(used(), CONTEXT + 3 * STEP_BYTES);
	CHECK(!swap_refusal());
	fill(a.ptr, STEP_BYTES, 1);
	out_and_in();
	CHECK(filled(a.ptr, STEP_BYTES, 1));
	EQUAL(cuGraphNodeGetType(node, &type), 0);
	EQUAL(type, CU_GRAPH_NODE_MEM_ALLOC);
	EQUAL(cuGraphMemAllocNodeGetParams(second, &got), 0);
	CHECK(got.ptr == params.alloc.ptr && got.bytes == 2 * STEP_BYTES && got.pool.location.type == CU_MEM_LOCATION_DEVICE);
	EQUAL(cuGraphAddMemFreeNode(&gone, graph, &second, 1, a.ptr), 0);
	EQUAL(cuGraphAddMemFreeNode(&gone, graph, &second, 1, a.ptr), CUDA_ERROR_INVALID_VALUE);
	of_free.freed = params.alloc.ptr;
	EQUAL(cuGraphAddNode(&gone, graph, &second, 1, &of_free), 0);
	EQUAL(cuGraphNodeGetType(gone, &type), 0);
	EQUAL(type, CU_GRAPH_NODE_MEM_FREE);
	EQUAL(cuGraphMemFreeNodeGetParams(gone, &ptr), 0);
	EQUAL(ptr, params.alloc.ptr);
	EQUAL(cuGraphMemAllocNodeGetParams(gone, &got), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuGraphDestroyNode(gone), CUDA_ERROR_NOT_SUPPORTED);
	EQUAL(cuGraphAddNode_v2(&empty, graph, NULL, NULL, 0, &none), 0);
	EQUAL(cuGraphNodeGetType(empty, &type), 0);
	EQUAL(type, CU_GRAPH_NODE_EMPTY);
	EQUAL(cuGraphDestroyNode(empty), 0);
	size_t count;
	EQUAL(((CUresult (*)(CUgraph, size_t *))driver("cuGraphGetNodeCount"))(graph, &count), 0);
	EQUAL(count, 4);
	exec = instance(graph, 0);
	EQUAL(cuGraphLaunch(exec, stream), 0);
	EQUAL(cuGraphLaunch(exec, stream), 0);
	EQUAL(cuGraphExecDestroy(exec), 0);
	EQUAL(cuGraphDestroy(graph), 0);
	EQUAL(used(), CONTEXT);
}

static void clones_and_updates_have_it_too(void)
{
	CUgraph clone, other;
	CUgraphExec exec, of_clone;
	unsigned long long with[8] = {CU_GRAPH_AUTO_FREE_ON_LAUNCH};
	CUdeviceptr p, q;

	begin_graphs();
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuMemAllocAsync(&p, STEP_BYTES, stream), 0);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	EQUAL(cuGraphClone(&clone, graph), 0);
	EQUAL(cuGraphDestroy(graph), 0);
	EQUAL(cuGraphInstantiateWithParams(&of_clone, clone, with), 0);
	EQUAL(cuGraphDestroy(clone), 0);
	EQUAL(used(), CONTEXT + STEP_BYTES);
	EQUAL(cuGraphLaunch(of_clone, stream), 0);
	EQUAL(cuGraphLaunch(of_clone, stream), 0);
	EQUAL(cuMemFree_v2(p), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuMemAllocAsync(&q, STEP_BYTES, stream), 0);
	EQUAL(cuStreamEndCapture(stream, &other), 0);
	EQUAL(cuGraphExecUpdate_v2(of_clone, other, NULL), 0);
	EQUAL(cuGraphDestroy(other), 0);
	EQUAL(used(), CONTEXT + STEP_BYTES); /* the first is no more */
	EQUAL(cuGraphLaunch(of_clone, stream), 0);
	out_and_in();
	EQUAL(cuMemFreeAsync(q, stream), 0);
	EQUAL(cuGraphExecDestroy(of_clone), 0);
	EQUAL(used(), CONTEXT);
	/* a graph with memory that is launched into another one */
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuMemAllocAsync(&p, STEP_BYTES, stream), 0);
	EQUAL(cuMemFreeAsync(p, stream), 0);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	exec = instance(graph, 0);
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuGraphLaunch(exec, stream), 0);
	EQUAL(cuStreamEndCapture(stream, &other), 0);
	EQUAL(cuGraphExecDestroy(exec), 0);
	EQUAL(cuGraphDestroy(graph), 0);
	EQUAL(used(), CONTEXT + STEP_BYTES);
	EQUAL(cuGraphDestroy(other), 0);
	EQUAL(used(), CONTEXT);
}

/* Memory serves again only where what is captured next comes after what freed it. */
static void memory_serves_again_only_in_order(void)
{
	CUstream other;
	CUgraph g;
	CUdeviceptr p, q;

	begin_graphs();
	EQUAL(real_cuStreamCreate(&other, 1), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuStreamBeginCapture_v2(other, 0), 0);
	EQUAL(cuMemAllocAsync(&p, STEP_BYTES, stream), 0);
	EQUAL(cuMemFreeAsync(p, stream), 0);
	EQUAL(cuMemAllocAsync(&q, STEP_BYTES, other), 0); /* another graph */
	CHECK(p != q);
	EQUAL(cuMemAllocAsync(&q, STEP_BYTES / 4, stream), 0); /* much less */
	CHECK(p != q);
	EQUAL(cuStreamUpdateCaptureDependencies_v2(stream, NULL, NULL, 0, 1), 0);
	EQUAL(cuMemAllocAsync(&q, STEP_BYTES, stream), 0); /* no longer after it */
	CHECK(p != q);
	EQUAL(cuMemFreeAsync(q, stream), 0);
	EQUAL(cuMemAllocAsync(&p, STEP_BYTES - MiB, stream), 0);
	EQUAL(p, q);
	EQUAL(cuMemFreeAsync(p, stream), 0);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	EQUAL(cuStreamEndCapture(other, &g), 0);
	EQUAL(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, 0), 0); /* after what, the program says */
	EQUAL(cuMemAllocAsync(&q, STEP_BYTES, stream), 0);
	CHECK(p != q);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	EQUAL(cuGraphDestroy(graph), 0);
	EQUAL(cuGraphDestroy(g), 0);
	EQUAL(used(), CONTEXT);
}

/* Where ours cannot stand in, the driver's node does, and the process stays: known ahead. */
static void what_cannot_stand_in_is_the_drivers(void)
{
	CUmemAllocNode a = {.pool = {.type = CU_MEM_ALLOCATION_PINNED, .handle_types = 1, .location = {CU_MEM_LOCATION_DEVICE, 0}}, .bytes = STEP_BYTES};
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_CONDITIONAL};
	CUgraph bodies[1];
	CUgraphNode node;
	CUgraphExec exec;
	struct swap_result r;
	CUdeviceptr p;

	begin_graphs();
	for (int i = 0; i < 3; i++) {
		graph = graph_made();
		params.conditional.bodies = bodies;
		params.conditional.size = 1;
		EQUAL(cuGraphAddNode(&node, graph, NULL, 0, &params), 0);
		setenv("STUB_OBJECTS", i == 1 ? "off" : "on", 1);
		if (i == 2) { /* into the body of a conditional node */
			EQUAL(cuStreamBeginCaptureToGraph(stream, bodies[0], NULL, NULL, 0, 0), 0);
			EQUAL(cuMemAllocAsync(&p, STEP_BYTES, stream), 0);
			EQUAL(cuStreamEndCapture(stream, &bodies[0]), 0);
			exec = instance(bodies[0], 0);
		} else {
			a.pool.handle_types = i == 0;
			EQUAL(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &a), 0);
			exec = instance(graph, 0);
		}
		EQUAL(used(), CONTEXT + STEP_BYTES);
		EQUAL(cuGraphLaunch(exec, stream), 0);
		CHECK(!strcmp(swap_refusal(), "memory pools"));
		swap_out(UINT64_MAX, &r);
		CHECK(!r.done && !strcmp(r.why, "memory pools"));
		EQUAL(cuGraphExecDestroy(exec), 0);
		EQUAL(cuGraphDestroy(graph), 0);
		EQUAL(cuDeviceGraphMemTrim(0), 0);
		EQUAL(used(), CONTEXT);
	}
	graph = graph_made();
	a.pool.handle_types = 0;
	a.bytes = 600 * MiB;
	EQUAL(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &a), CUDA_ERROR_OUT_OF_MEMORY);
	size_t count;
	EQUAL(((CUresult (*)(CUgraph, size_t *))driver("cuGraphGetNodeCount"))(graph, &count), 0);
	EQUAL(count, 0);
	EQUAL(used(), CONTEXT);
	out_and_in();
}

/* A capture that fails takes its memory with it, though nobody destroys its graph. */
static void a_capture_that_fails_leaves_nothing(void)
{
	CUdeviceptr p;

	begin_graphs();
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuMemAllocAsync(&p, STEP_BYTES, stream), 0);
	EQUAL(used(), CONTEXT + STEP_BYTES);
	setenv("STUB_CAPTURE_FAILS", "1", 1);
	EQUAL(cuStreamEndCapture(stream, &graph), 901);
	unsetenv("STUB_CAPTURE_FAILS");
	EQUAL(cuMemAlloc_v2(&p, 440 * MiB), 0); /* whoever needs the memory has it */
	EQUAL(used(), CONTEXT + 440 * MiB);
}

static _Atomic bool enough;
static void *work(void *arg)
{
	CUdeviceptr in, p;
	CUgraphExec exec;
	CUstream mine;
	CUgraph g;

	(void)arg;
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(real_cuStreamCreate(&mine, 1), 0);
	EQUAL(cuMemAlloc_v2(&in, 4 * MiB), 0);
	fill(in, 4 * MiB, 1);
	for (unsigned i = 0; !atomic_load(&enough); i++) {
		EQUAL(cuStreamBeginCapture_v2(mine, 0), 0);
		EQUAL(cuMemAllocAsync(&p, 4 * MiB, mine), 0);
		add(p, in, i, mine);
		if (i % 2)
			EQUAL(cuMemFreeAsync(p, mine), 0);
		EQUAL(cuStreamEndCapture(mine, &g), 0);
		exec = instance(g, 0);
		EQUAL(cuGraphDestroy(g), 0);
		EQUAL(cuGraphLaunch(exec, mine), 0);
		sleep_ns(MS / 10);
		EQUAL(cuStreamSynchronize(mine), 0);
		if (i % 2 == 0) {
			uint64_t got;
			EQUAL(cuMemcpyDtoH_v2(&got, p, 8), 0);
			EQUAL(got, 1 + i + (got & ~0xffffffffull));
			EQUAL(cuMemFreeAsync(p, mine), 0);
		}
		EQUAL(cuGraphExecDestroy(exec), 0);
	}
	EQUAL(cuMemFree_v2(in), 0);
	return NULL;
}

/* The driver says on threads of its own that nobody has a piece any more, whatever others do. */
static void threads_work_with_graphs_meanwhile(void)
{
	pthread_t t[3];

	begin_graphs();
	setenv("STUB_DESTRUCTORS", "thread", 1);
	for (int i = 0; i < 3; i++)
		EQUAL(pthread_create(&t[i], NULL, work, NULL), 0);
	for (int i = 0; i < 10; i++) {
		sleep_ns(5 * MS);
		out_and_in();
	}
	atomic_store(&enough, true);
	for (int i = 0; i < 3; i++)
		EQUAL(pthread_join(t[i], NULL), 0);
	while (used() > CONTEXT) {
		graph_memory_settle();
		sleep_ns(MS);
	}
	EQUAL(stub_card_used(0), CONTEXT);
	CHECK(!blocks);
}

static void failures_and_ends(void)
{
	struct swap_result r;
	CUcontext second;
	CUdeviceptr p, q;
	CUgraphExec exec;
	uint64_t missing;
	pid_t pid;

	begin_graphs();
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuMemAllocAsync(&p, STEP_BYTES, stream), 0);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	exec = instance(graph, 0);
	EQUAL(cuGraphLaunch(exec, stream), 0);
	fill(p, STEP_BYTES, 8);
	out();
	setenv("STUB_MEMORY", "68157440", 1);
	swap_in(&r, &missing);
	CHECK(!r.done && missing > 0 && swap_is_out());
	setenv("STUB_MEMORY", "1073741824", 1);
	swap_in(&r, &missing);
	CHECK(r.done && filled(p, STEP_BYTES, 8));
	EQUAL(cuCtxCreate_v2(&second, 0, 0), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuMemAllocAsync(&q, STEP_BYTES, stream), 0);
	CUgraph other;
	EQUAL(cuStreamEndCapture(stream, &other), 0);
	EQUAL(cuCtxDestroy_v2(second), 0); /* its memory goes with it, before its graph */
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuMemFree_v2(q), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuGraphDestroy(other), 0);
	CHILD(pid, {
		CHECK(!graph_memory_owns(p));
		EQUAL(cuInit(0), 0);
		EQUAL(cuCtxCreate_v2(&ctx, 0, 0), 0);
		EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
		EQUAL(cuMemAllocAsync(&p, STEP_BYTES, stream), 0);
		EQUAL(cuStreamEndCapture(stream, &graph), 0);
		out_and_in();
		EQUAL(cuGraphDestroy(graph), 0);
	});
	check_exit(pid);
	EQUAL(cuMemFreeAsync(p, stream), 0);
	EQUAL(cuGraphExecDestroy(exec), 0);
	EQUAL(cuGraphDestroy(graph), 0);
	EQUAL(stub_card_used(0), CONTEXT);
}

MAIN(T(captured_memory_goes_out_and_comes_back), T(what_the_program_frees_lives_until_then), T(one_graph_allocates_and_another_frees),
	T(added_nodes_are_answered_for), T(clones_and_updates_have_it_too), T(memory_serves_again_only_in_order), T(what_cannot_stand_in_is_the_drivers),
	T(a_capture_that_fails_leaves_nothing), T(threads_work_with_graphs_meanwhile), T(failures_and_ends))
