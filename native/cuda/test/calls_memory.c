/* Calls that take memory, contexts and cards, through the library, against the tests' driver. */
#include "calls.h"

static void nothing_is_granted_without_limits(void)
{
	EQUAL(cuInit(0), CUDA_ERROR_NO_DEVICE);
	check_write("/etc/elastic-gpu/limits", "elastic-gpu 1\ncontainer a\nsurprise\n");
	EQUAL(cuInit(0), CUDA_ERROR_NO_DEVICE);
}

static void the_share_is_what_is_seen(void)
{
	size_t total;
	unsigned small_free, small_total, n = 4;
	nvmlMemory m;
	nvmlMemoryV2 m2;
	nvmlProcessV2 processes[4];
	nvmlProcessV1 who1[4];
	nvmlDevice dev = (nvmlDevice)1;
	CUdeviceptr p;

	begin_512();
	EQUAL(cuDeviceTotalMem_v2(&total, 0), 0);
	EQUAL(total, LIMIT);
	EQUAL(free_shown(), LIMIT - CONTEXT);
	EQUAL(cuMemGetInfo(&small_free, &small_total), 0);
	EQUAL(small_total, LIMIT);
	EQUAL(cuMemAlloc_v2(&p, 100 * MiB), 0);
	EQUAL(nvmlDeviceGetMemoryInfo(dev, &m), 0);
	EQUAL(m.total, LIMIT);
	EQUAL(m.used, CONTEXT + 100 * MiB);
	EQUAL(m.free, LIMIT - CONTEXT - 100 * MiB);
	EQUAL(nvmlDeviceGetMemoryInfo_v2(dev, &m2), 0);
	EQUAL(m2.used, m.used);
	EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(dev, &n, processes), 0);
	EQUAL(n, 1);
	EQUAL(processes[0].pid, getpid());
	EQUAL(processes[0].used, m.used);
	n = 4;
	EQUAL(nvmlDeviceGetComputeRunningProcesses(dev, &n, who1), 0);
	EQUAL(who1[0].used, m.used);
	n = 0;
	EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(dev, &n, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
	EQUAL(n, 1);
}

static void every_way_to_take_memory_meets_the_limit(void)
{
	uint64_t key[64];

	begin_512();
	for (unsigned w = 0; w < WAYS; w++)
		for (int again = 0; again < 2; again++) {
			int n = 0;
			CUresult r;
			while ((r = ways[w].take(32 * MiB, &key[n])) == CUDA_SUCCESS)
				CHECK(++n < 64);
			/* 64 MiB are the context's: 14 steps fit, the fifteenth does not. */
			if (n != 14 || r != CUDA_ERROR_OUT_OF_MEMORY || used() > LIMIT) {
				fprintf(stderr, "%s: %d steps, error %d, %llu used\n", ways[w].name, n, r, (unsigned long long)used());
				_exit(1);
			}
			EQUAL(free_shown(), 0);
			EQUAL(stub_card_used(0) <= LIMIT, 1);
			while (n--)
				EQUAL(ways[w].give(key[n]), 0);
			if (used() != CONTEXT) {
				fprintf(stderr, "%s: %llu left after all was freed\n", ways[w].name, (unsigned long long)(used() - CONTEXT));
				_exit(1);
			}
		}
}

static void ways_are_counted_together(void)
{
	uint64_t key;
	int n = 0;

	begin_512();
	while (ways[n % WAYS].take(32 * MiB, &key) == CUDA_SUCCESS)
		n++;
	EQUAL(n, 14);
}

static void small_print_of_allocation(void)
{
	CUdeviceptr p;
	unsigned old_ptr;

	begin_512();
	EQUAL(cuMemAlloc(&old_ptr, 64), CUDA_ERROR_NOT_SUPPORTED); /* the 32-bit call is no way round */
	EQUAL(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuMemAlloc_v2(&p, UINT64_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(cuMemFree_v2(0), 0);
	EQUAL(cuMemFree_v2(0x1234), CUDA_ERROR_INVALID_VALUE);
	EQUAL(used(), CONTEXT);
}

static void a_reservation_of_host_memory_is_free(void)
{
	CUmemProp host = {.type = 1, .location = {CU_MEM_LOCATION_HOST, 0}};
	CUmemHandle h;
	begin_512();
	EQUAL(cuMemCreate(&h, 900 * MiB, &host, 0), 0);
	EQUAL(used(), CONTEXT);
}

static void handles_live_while_they_are_held_or_mapped(void)
{
	CUmemHandle h, again, in;
	CUdeviceptr p;
	CUmemProp shareable = on_device;
	int fd;

	shareable.handle_types = CU_MEM_HANDLE_POSIX_FD;
	begin_512();
	EQUAL(cuMemCreate(&h, 32 * MiB, &shareable, 0), 0);
	EQUAL(real_cuMemAddressReserve(&p, 64 * MiB, 0, 0, 0), 0);
	EQUAL(cuMemMap(p, 32 * MiB, 0, h, 0), 0);
	EQUAL(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)p), 0);
	EQUAL(cuMemRelease(h), 0);
	EQUAL(cuMemUnmap(p, 32 * MiB), 0);
	EQUAL(used(), CONTEXT + 32 * MiB); /* still retained */
	EQUAL(cuMemExportToShareableHandle(&fd, again, 1, 0), 0);
	EQUAL(cuMemImportFromShareableHandle(&in, (void *)(intptr_t)fd, 1), 0);
	EQUAL(cuMemMap(p + 32 * MiB, 32 * MiB, 0, in, 0), 0);
	EQUAL(used(), CONTEXT + 64 * MiB); /* what is imported counts when it is mapped */
	EQUAL(cuMemUnmap(p + 32 * MiB, 32 * MiB), 0);
	EQUAL(cuMemRelease(in), 0);
	EQUAL(cuMemRelease(again), 0);
	EQUAL(used(), CONTEXT + 32 * MiB); /* the descriptor may be open */
}

static void memory_shared_inside_the_container_counts_once(void)
{
	int up[2], down[2];
	CUipcMemHandle h;
	CUdeviceptr p;
	pid_t pid;
	char c;

	check_limits("", "device * memory 536870912");
	CHECK(pipe(up) == 0 && pipe(down) == 0);
	CHILD(pid, {
		CUcontext mine;
		EQUAL(cuInit(0), 0);
		EQUAL(cuDevicePrimaryCtxRetain(&mine, 0), 0);
		real_cuCtxSetCurrent(mine);
		EQUAL(cuMemAlloc_v2(&p, 200 * MiB), 0);
		EQUAL(cuIpcGetMemHandle(&h, p), 0);
		CHECK(write(up[1], &h, sizeof h) == (ssize_t)sizeof h);
		CHECK(read(down[0], &c, 1) >= 0);
		pause();
	});
	CHECK(read(up[0], &h, sizeof h) == (ssize_t)sizeof h);
	begin_512();
	EQUAL(used(), 2 * CONTEXT + 200 * MiB);
	EQUAL(cuIpcOpenMemHandle_v2(&p, h, 1), 0);
	EQUAL(used(), 2 * CONTEXT + 200 * MiB);
	kill(pid, SIGKILL); /* now only we hold on to it */
	CHECK(waitpid(pid, NULL, 0) == pid);
	ipc_imports_refresh();
	UNTIL((container_reap(session.container), used() == CONTEXT + 200 * MiB));
	EQUAL(cuIpcCloseMemHandle(p), 0);
	EQUAL(used(), CONTEXT);
	h.reserved[20] ^= 1; /* from another container: nobody here pays for it */
	EQUAL(cuIpcOpenMemHandle_v2(&p, h, 1), 0);
	EQUAL(used(), CONTEXT + 200 * MiB);
	CUdeviceptr q;
	EQUAL(cuMemAlloc_v2(&q, 100 * MiB), 0);
	CUdeviceptr twice;
	EQUAL(cuIpcOpenMemHandle_v2(&twice, h, 1), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(used(), CONTEXT + 300 * MiB);
}

static void graphs_pay_for_their_memory(void)
{
	CUgraphNode node;
	CUmemAllocNode a = {.pool = {.type = 1, .location = {CU_MEM_LOCATION_DEVICE, 0}}, .bytes = 200 * MiB};
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_MEM_ALLOC};
	CUgraphExec exec, second;
	CUdeviceptr p;

	begin_512();
	EQUAL(((CUresult (*)(CUgraph *, unsigned))driver("cuGraphCreate"))(&graph, 0), 0);
	EQUAL(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &a), 0);
	params.alloc = a;
	params.alloc.bytes = 100 * MiB;
	EQUAL(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params), 0);
	params.alloc.bytes = 1000 * MiB;
	EQUAL(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(used(), CONTEXT);
	EQUAL(cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
	EQUAL(used(), CONTEXT + 300 * MiB);
	EQUAL(cuGraphInstantiateWithFlags(&second, graph, 0), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(cuGraphLaunch(exec, NULL), 0);
	EQUAL(stub_card_used(0), CONTEXT + 300 * MiB);
	EQUAL(used(), CONTEXT + 300 * MiB);
	EQUAL(cuGraphExecDestroy(exec), 0);
	EQUAL(used(), CONTEXT + 300 * MiB); /* the driver retains it for the next graph */
	EQUAL(cuMemAlloc_v2(&p, 200 * MiB), 0); /* nobody needs it: it is given up for this */
	EQUAL(used(), CONTEXT + 200 * MiB);
	EQUAL(stub_card_used(0), CONTEXT + 200 * MiB);
	EQUAL(cuDeviceGraphMemTrim(0), 0);
	EQUAL(cuGraphDestroy(graph), 0);
}

static void captured_allocations_belong_to_the_graph(void)
{
	CUdeviceptr p;
	CUgraphExec exec;
	begin_512();
	EQUAL(real_cuStreamCreate(&stream, 1), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	EQUAL(cuMemAllocAsync(&p, 200 * MiB, stream), 0);
	EQUAL(cuMemAllocAsync(&p, 600 * MiB, stream), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(used(), CONTEXT);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	CHECK(!stream_capturing(stream));
	EQUAL(cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
	EQUAL(used(), CONTEXT + 200 * MiB);
	EQUAL(cuGraphExecDestroy(exec), 0);
	EQUAL(used(), CONTEXT);
}

static void contexts_and_code_count(void)
{
	CUcontext second;
	CUmodule m;
	CUdeviceptr p;

	begin("", "device * memory 201326592"); /* 192 MiB: three contexts, no more */
	EQUAL(used(), CONTEXT);
	EQUAL(cuModuleLoadData(&m, ""), 0);
	overhead_refresh(&session.device[0]);
	EQUAL(used(), CONTEXT + MiB);
	EQUAL(cuModuleUnload(m), 0);
	for (int i = 0; i < 3; i++) /* less is believed when it is seen again */
		overhead_refresh(&session.device[0]);
	EQUAL(used(), CONTEXT);
	EQUAL(cuCtxCreate_v4(&second, NULL, 0, 0), 0);
	EQUAL(cuMemAlloc_v2(&p, 20 * MiB), 0);
	overhead_refresh(&session.device[0]);
	EQUAL(used(), 2 * CONTEXT + 20 * MiB);
	EQUAL(cuCtxDestroy_v2(second), 0); /* and with it the allocation made in it */
	for (int i = 0; i < 3; i++)
		overhead_refresh(&session.device[0]);
	EQUAL(used(), CONTEXT);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuMemAlloc_v2(&p, 100 * MiB), 0);
	EQUAL(cuDevicePrimaryCtxReset_v2(0), 0);
	EQUAL(used(), 0);
}

/* The driver grows a pool by more than was asked for: until that is charged as the pool's, it is nobody's overhead. */
static void a_pool_that_grows_is_no_overhead(void)
{
	CUmemPool pool;
	CUdeviceptr p = 0;
	struct holding *h;

	begin("", "device * memory 268435456");
	EQUAL(real_cuDeviceGetMemPool(&pool, 0), 0);
	h = pool_take(pool, &session.device[0], 4096);
	CHECK(h);
	EQUAL(real_cuMemAllocAsync(&p, 4096, NULL), 0);
	overhead_refresh(&session.device[0]);
	EQUAL(used(), CONTEXT + 4096);
	EQUAL(pool_took(h, CUDA_SUCCESS, p, NULL), 0);
	EQUAL(used(), stub_card_used(0));
	overhead_refresh(&session.device[0]);
	EQUAL(used(), stub_card_used(0));
}

static void a_context_that_does_not_fit_is_refused(void)
{
	check_limits("", "device * memory 33554432");
	EQUAL(cuInit(0), 0);
	EQUAL(cuDevicePrimaryCtxRetain(&ctx, 0), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(used(), 0);
	EQUAL(stub_card_used(0), 0);
}

static void limits_change_while_it_runs(void)
{
	CUdeviceptr p, q;
	begin_512();
	EQUAL(cuMemAlloc_v2(&p, 400 * MiB), 0);
	EQUAL(cuMemAlloc_v2(&q, 200 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
	check_limits("", "device * memory 1073741824");
	session_reload(true);
	EQUAL(cuMemAlloc_v2(&q, 200 * MiB), 0);
	check_limits("", "device * memory 104857600"); /* less than it holds: nothing is taken away, nothing is given */
	session_reload(true);
	CUdeviceptr r;
	EQUAL(cuMemAlloc_v2(&r, 512), CUDA_ERROR_OUT_OF_MEMORY);
	size_t f, t;
	EQUAL(cuMemGetInfo_v2(&f, &t), 0);
	EQUAL(f, 0);
	EQUAL(t, 104857600);
	EQUAL(cuMemFree_v2(p), 0);
	check_write("/etc/elastic-gpu/limits", "not for us\n"); /* what cannot be read changes nothing */
	session_reload(true);
	EQUAL(atomic_load(&session.device[0].limit), 104857600);
}

static void each_card_has_its_own_limit(void)
{
	CUcontext other;
	CUdeviceptr p;
	setenv("STUB_DEVICES", "2", 1);
	begin("", "device GPU-11111111-1111-1111-1111-111111111120 memory 209715200\ndevice GPU-11111111-1111-1111-1111-111111111121 memory 419430400");
	EQUAL(cuMemAlloc_v2(&p, 200 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(cuDevicePrimaryCtxRetain(&other, 1), 0);
	EQUAL(real_cuCtxSetCurrent(other), 0);
	EQUAL(cuMemAlloc_v2(&p, 200 * MiB), 0);
	EQUAL(container_used(session.container, 0), CONTEXT);
	EQUAL(container_used(session.container, 1), CONTEXT + 200 * MiB);
}

static void functions_are_found_through_the_driver(void)
{
	static const struct { const char *name; int version; uint64_t flags; void *want; } cases[] = {
		{"cuMemAlloc", 3020, 0, (void *)cuMemAlloc_v2}, {"cuMemAlloc", 2000, 0, (void *)cuMemAlloc}, {"cuMemAlloc", 13000, 1, (void *)cuMemAlloc_v2},
		{"cuLaunchKernel", 12000, 1, (void *)cuLaunchKernel}, {"cuLaunchKernel", 12000, 2, (void *)cuLaunchKernel_ptsz},
		{"cuGetProcAddress", 12000, 0, (void *)cuGetProcAddress_v2}, {"cuGetProcAddress", 11030, 0, (void *)cuGetProcAddress},
		{"cuGraphInstantiate", 12000, 0, (void *)cuGraphInstantiateWithFlags},
		{"cuMemAllocAsync", 12000, 2, (void *)cuMemAllocAsync_ptsz}, {"cuIpcOpenMemHandle", 11000, 0, (void *)cuIpcOpenMemHandle_v2},
	};
	begin_512();
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		void *p = NULL;
		int status;
		EQUAL(cuGetProcAddress_v2(cases[i].name, &p, cases[i].version, cases[i].flags, &status), 0);
		if (p != cases[i].want) {
			fprintf(stderr, "%s for %d\n", cases[i].name, cases[i].version);
			_exit(1);
		}
		EQUAL(cuGetProcAddress(cases[i].name, &p, cases[i].version, cases[i].flags), 0);
		CHECK(p == cases[i].want);
	}
	void *p;
	EQUAL(cuGetProcAddress_v2("cuNoSuchThing", &p, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
	EQUAL(cuGetProcAddress_v2("cuEventQuery", &p, 12000, 0, NULL), 0); /* not ours: the driver's own */
	CHECK(p == driver("cuEventQuery"));
}

static void a_child_starts_afresh(void)
{
	CUdeviceptr p;
	pid_t pid;

	begin_512();
	EQUAL(cuMemAlloc_v2(&p, 100 * MiB), 0);
	int parent = atomic_load(&session.process);
	CHILD(pid, {
		EQUAL(atomic_load(&session.process), -1);
		EQUAL(cuInit(0), 0);
		CHECK(atomic_load(&session.process) != parent);
		CHECK(!memory_charge(&session.device[0], 400 * MiB)); /* the parent's memory counts, and is not ours to free */
		CHECK(memory_charge(&session.device[0], 300 * MiB));
		EQUAL(used(), CONTEXT + 400 * MiB);
	});
	check_exit(pid);
	UNTIL((container_reap(session.container), used() == CONTEXT + 100 * MiB)); /* the child's end took nothing of ours */
	CHILD(pid, execlp("true", "true", NULL));
	check_exit(pid);
	EQUAL(used(), CONTEXT + 100 * MiB);
}

/* The sum is looked at when all have taken what they could: while some take and others leave, no reader sees one moment. */
static void two_hundred_processes_start_at_once(void)
{
	enum { N = 200 };
	pid_t pids[N];
	int go[2], full[2], look[2], status, fine = 0;
	char c = 0;

	setenv("STUB_CONTEXT", "1048576", 1);
	check_limits("", "device * memory 536870912");
	CHECK(pipe(go) == 0 && pipe(full) == 0 && pipe(look) == 0);
	for (int i = 0; i < N; i++)
		CHILD(pids[i], {
			CUcontext mine;
			CUdeviceptr p;
			close(go[1]);
			close(look[1]);
			CHECK(read(go[0], &c, 1) == 0);
			EQUAL(cuInit(0), 0);
			CUresult r = cuDevicePrimaryCtxRetain(&mine, 0);
			if (r == CUDA_SUCCESS) {
				real_cuCtxSetCurrent(mine);
				while ((r = cuMemAlloc_v2(&p, MiB)) == CUDA_SUCCESS)
					;
			}
			CHECK(write(full[1], &c, 1) == 1 && read(look[0], &c, 1) == 0);
			EQUAL(r, CUDA_ERROR_OUT_OF_MEMORY);
			CHECK(container_used(session.container, 0) <= LIMIT);
		});
	close(go[1]);
	close(full[1]);
	for (int i = 0; i < N; i++)
		CHECK(read(full[0], &c, 1) == 1);
	close(look[1]);
	for (int i = 0; i < N; i++) {
		CHECK(waitpid(pids[i], &status, 0) == pids[i]);
		fine += status == 0;
	}
	EQUAL(fine, N);
	setenv("STUB_CONTEXT", "67108864", 1);
	begin_512();
	EQUAL(used(), CONTEXT);
}

/* A descriptor holds on to its memory, and nobody says when it is closed. */
static void what_was_given_as_a_descriptor_stays_charged(void)
{
	CUmemProp prop = on_device;
	CUmemHandle h;
	int fd, n = 0;
	CUresult r;

	prop.handle_types = CU_MEM_HANDLE_POSIX_FD;
	begin_512();
	while ((r = cuMemCreate(&h, 32 * MiB, &prop, 0)) == CUDA_SUCCESS && n < 100) {
		EQUAL(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_POSIX_FD, 0), 0);
		EQUAL(cuMemRelease(h), 0);
		EQUAL(used(), CONTEXT + (uint64_t)++n * 32 * MiB);
	}
	EQUAL(r, CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(n, 14);
}

MAIN(T(nothing_is_granted_without_limits), T(the_share_is_what_is_seen), T(every_way_to_take_memory_meets_the_limit), T(ways_are_counted_together), T(what_was_given_as_a_descriptor_stays_charged),
	T(small_print_of_allocation), T(a_reservation_of_host_memory_is_free), T(handles_live_while_they_are_held_or_mapped),
	T(memory_shared_inside_the_container_counts_once), T(graphs_pay_for_their_memory), T(captured_allocations_belong_to_the_graph),
	T(contexts_and_code_count), T(a_pool_that_grows_is_no_overhead), T(a_context_that_does_not_fit_is_refused), T(limits_change_while_it_runs), T(each_card_has_its_own_limit),
	T(functions_are_found_through_the_driver), T(a_child_starts_afresh), T(two_hundred_processes_start_at_once))
