/* Every entry point through the library, against the tests' driver. */
#include <pthread.h>
#include <sys/mman.h>
#include "check.h"

/* Declared here as a program would see them. */
CUresult cuInit(unsigned);
#define ENTRY(name) extern __typeof__(*(fn_##name)0) name
ENTRY(cuMemAlloc_v2); ENTRY(cuMemAllocPitch_v2); ENTRY(cuMemAllocManaged); ENTRY(cuMemFree_v2); ENTRY(cuMemAlloc); ENTRY(cuMemGetInfo_v2);
ENTRY(cuMemGetInfo); ENTRY(cuDeviceTotalMem_v2); ENTRY(cuDevicePrimaryCtxRetain); ENTRY(cuDevicePrimaryCtxRelease_v2); ENTRY(cuDevicePrimaryCtxReset_v2);
ENTRY(cuCtxCreate_v2); ENTRY(cuCtxCreate_v4); ENTRY(cuCtxDestroy_v2); ENTRY(cuArrayCreate_v2); ENTRY(cuArray3DCreate_v2); ENTRY(cuArrayDestroy);
ENTRY(cuMipmappedArrayCreate); ENTRY(cuMipmappedArrayDestroy); ENTRY(cuMemAllocAsync); ENTRY(cuMemAllocAsync_ptsz); ENTRY(cuMemFreeAsync);
ENTRY(cuMemAllocFromPoolAsync); ENTRY(cuMemPoolCreate); ENTRY(cuMemPoolDestroy); ENTRY(cuMemPoolTrimTo); ENTRY(cuMemCreate); ENTRY(cuMemRelease);
ENTRY(cuMemMap); ENTRY(cuMemUnmap); ENTRY(cuMemRetainAllocationHandle); ENTRY(cuMemImportFromShareableHandle); ENTRY(cuMemExportToShareableHandle);
ENTRY(cuIpcGetMemHandle); ENTRY(cuIpcOpenMemHandle_v2); ENTRY(cuIpcCloseMemHandle); ENTRY(cuImportExternalMemory); ENTRY(cuDestroyExternalMemory);
ENTRY(cuGraphAddMemAllocNode); ENTRY(cuGraphAddNode_v2); ENTRY(cuGraphLaunch); ENTRY(cuGraphExecDestroy); ENTRY(cuGraphInstantiateWithFlags); ENTRY(cuGraphDestroy); ENTRY(cuDeviceGraphMemTrim);
ENTRY(cuLaunchKernel); ENTRY(cuLaunchKernel_ptsz); ENTRY(cuLaunchKernelEx); ENTRY(cuLaunchCooperativeKernel); ENTRY(cuStreamBeginCapture_v2); ENTRY(cuStreamEndCapture);
ENTRY(cuStreamDestroy_v2); ENTRY(cuMemcpyHtoD_v2); ENTRY(cuMemcpyDtoH_v2); ENTRY(cuMemsetD8_v2); ENTRY(cuMemsetD32Async); ENTRY(cuMemGetAddressRange_v2);
ENTRY(cuModuleLoadData); ENTRY(cuModuleUnload); ENTRY(cuGetProcAddress_v2); ENTRY(cuGetProcAddress); ENTRY(cuGraphicsGLRegisterBuffer); ENTRY(cuMemcpyDtoDAsync_v2);
ENTRY(nvmlDeviceGetMemoryInfo); ENTRY(nvmlDeviceGetMemoryInfo_v2); ENTRY(nvmlDeviceGetComputeRunningProcesses_v3); ENTRY(nvmlDeviceGetComputeRunningProcesses);

/* The driver's functions that are not in the table. */
static void *driver(const char *name)
{
	void *p = real_dlsym(real_dlopen("libcuda.so.1", 1), name);
	CHECK(p);
	return p;
}

#define CONTEXT (64 * MiB)
#define LIMIT (512 * MiB)
static CUcontext ctx;

static void begin(const char *extra, const char *device)
{
	check_limits(extra, device);
	EQUAL(cuInit(0), 0);
	EQUAL(cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
}
static void begin_512(void) { begin("", "device * memory 536870912"); }
static void begin_swap(void) { begin("swap on\n", "device * memory 536870912"); }

static uint64_t used(void) { return container_used(session.container, 0); }
static size_t free_shown(void)
{
	size_t f, t;
	EQUAL(cuMemGetInfo_v2(&f, &t), 0);
	EQUAL(t, LIMIT);
	return f;
}

/* ---- memory ---- */

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

/* One way to take and give back a step of memory. */
struct way { const char *name; CUresult (*take)(uint64_t bytes, uint64_t *key); CUresult (*give)(uint64_t key); };

static CUmemPool own_pool;
static CUgraph graph;
static CUstream stream;

static CUresult take_plain(uint64_t n, uint64_t *k) { CUdeviceptr p = 0; CUresult r = cuMemAlloc_v2(&p, n); *k = p; return r; }
static CUresult give_plain(uint64_t k) { return cuMemFree_v2(k); }
static CUresult take_pitch(uint64_t n, uint64_t *k) { CUdeviceptr p = 0; size_t pitch; CUresult r = cuMemAllocPitch_v2(&p, &pitch, 4096, n / 4096, 16); *k = p; return r; }
static CUresult take_managed(uint64_t n, uint64_t *k) { CUdeviceptr p = 0; CUresult r = cuMemAllocManaged(&p, n, 1); *k = p; return r; }
static CUresult take_async(uint64_t n, uint64_t *k) { CUdeviceptr p = 0; CUresult r = cuMemAllocAsync(&p, n, NULL); *k = p; return r; }
static CUresult take_async_thread(uint64_t n, uint64_t *k) { CUdeviceptr p = 0; CUresult r = cuMemAllocAsync_ptsz(&p, n, NULL); *k = p; return r; }
static CUresult give_async(uint64_t k) { CUmemPool d; CUresult r = cuMemFreeAsync(k, NULL); real_cuDeviceGetMemPool(&d, 0); cuMemPoolTrimTo(d, 0); return r; }
static CUresult take_pool(uint64_t n, uint64_t *k)
{
	CUmemPoolProps props = {.type = 1, .location = {CU_MEM_LOCATION_DEVICE, 0}};
	CUdeviceptr p = 0;
	if (!own_pool)
		EQUAL(cuMemPoolCreate(&own_pool, &props), 0);
	CUresult r = cuMemAllocFromPoolAsync(&p, n, own_pool, NULL);
	*k = p;
	return r;
}
static CUresult give_pool(uint64_t k) { CUresult r = cuMemFreeAsync(k, NULL); cuMemPoolTrimTo(own_pool, 0); return r; }
static const CUmemProp on_device = {.type = 1, .location = {CU_MEM_LOCATION_DEVICE, 0}};
static CUresult take_handle(uint64_t n, uint64_t *k) { CUmemHandle h = 0; CUresult r = cuMemCreate(&h, n, &on_device, 0); *k = h; return r; }
static CUresult give_handle(uint64_t k) { return cuMemRelease(k); }
static CUresult take_mapped(uint64_t n, uint64_t *k)
{
	CUmemHandle h;
	CUdeviceptr p;
	CUresult r = cuMemCreate(&h, n, &on_device, 0);
	if (r)
		return r;
	EQUAL(real_cuMemAddressReserve(&p, n, 0, 0, 0), 0);
	EQUAL(cuMemMap(p, n, 0, h, 0), 0);
	EQUAL(cuMemRelease(h), 0); /* the mapping holds on to it */
	*k = p;
	return r;
}
static CUresult give_mapped(uint64_t k) { return cuMemUnmap(k, 32 * MiB); }
static CUresult take_array(uint64_t n, uint64_t *k) { CUarrayDesc d = {1024, n / 4096, 0x20, 1}; CUarray a = NULL; CUresult r = cuArrayCreate_v2(&a, &d); *k = (uintptr_t)a; return r; }
static CUresult give_array(uint64_t k) { return cuArrayDestroy((CUarray)(uintptr_t)k); }
static CUresult take_array3(uint64_t n, uint64_t *k) { CUarray3DDesc d = {1024, 64, n / 4096 / 64, 0x20, 1, 0}; CUarray a = NULL; CUresult r = cuArray3DCreate_v2(&a, &d); *k = (uintptr_t)a; return r; }
static CUresult take_mips(uint64_t n, uint64_t *k) { CUarray3DDesc d = {1024, n / 4096, 0, 0x20, 1, 0}; CUmipmappedArray a = NULL; CUresult r = cuMipmappedArrayCreate(&a, &d, 1); *k = (uintptr_t)a; return r; }
static CUresult give_mips(uint64_t k) { return cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)k); }
static CUresult take_external(uint64_t n, uint64_t *k) { CUexternalMemoryDesc d = {.type = 1, .size = n}; CUexternalMemory m = NULL; CUresult r = cuImportExternalMemory(&m, &d); *k = (uintptr_t)m; return r; }
static CUresult give_external(uint64_t k) { return cuDestroyExternalMemory((CUexternalMemory)(uintptr_t)k); }

static const struct way ways[] = {
	{"cuMemAlloc", take_plain, give_plain}, {"cuMemAllocPitch", take_pitch, give_plain}, {"cuMemAllocManaged", take_managed, give_plain},
	{"cuMemAllocAsync", take_async, give_async}, {"cuMemAllocAsync_ptsz", take_async_thread, give_async}, {"cuMemAllocFromPoolAsync", take_pool, give_pool},
	{"cuMemCreate", take_handle, give_handle}, {"cuMemMap", take_mapped, give_mapped}, {"cuArrayCreate", take_array, give_array},
	{"cuArray3DCreate", take_array3, give_array}, {"cuMipmappedArrayCreate", take_mips, give_mips}, {"cuImportExternalMemory", take_external, give_external},
};
#define WAYS (sizeof ways / sizeof *ways)

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
	int fd;

	begin_512();
	EQUAL(cuMemCreate(&h, 32 * MiB, &on_device, 0), 0);
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
	EQUAL(used(), CONTEXT);
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
		CHECK(read(down[0], &c, 1) == 0 || 1);
		pause();
	});
	CHECK(read(up[0], &h, sizeof h) == (ssize_t)sizeof h);
	begin_512();
	EQUAL(used(), 2 * CONTEXT + 200 * MiB);
	EQUAL(cuIpcOpenMemHandle_v2(&p, h, 1), 0);
	EQUAL(used(), 2 * CONTEXT + 200 * MiB);
	kill(pid, SIGKILL); /* now only we hold on to it */
	CHECK(waitpid(pid, NULL, 0) == pid);
	container_reap(session.container);
	ipc_imports_refresh();
	EQUAL(used(), CONTEXT + 200 * MiB);
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
	container_reap(session.container);
	EQUAL(used(), CONTEXT + 100 * MiB); /* the child's end took nothing of ours */
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

/* ---- turns ---- */

static void launch(struct stub_kernel *k, CUstream s)
{
	EQUAL(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), 0);
}

static uint64_t launched(void) { return atomic_load((_Atomic uint64_t *)driver("stub_launched")); }

static void every_launch_pays_and_gets_through(void)
{
	struct stub_kernel k = {200000, NULL};
	CUlaunchConfig config = {.stream = NULL};
	CUgraphExec exec;
	CUdeviceptr p;

	begin("", "device * memory 536870912 compute 30");
	EQUAL(cuMemAlloc_v2(&p, MiB), 0);
	EQUAL(real_cuStreamCreate(&stream, 1), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	launch(&k, stream); /* captured, not run: needs no turn */
	EQUAL(launched(), 0);
	EQUAL(atomic_load(&session.container->process[atomic_load(&session.process)].busy_ns[0]), 0);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	size_t nodes;
	EQUAL(((CUresult (*)(CUgraph, size_t *))driver("cuGraphGetNodeCount"))(graph, &nodes), 0);
	EQUAL(nodes, 1); /* nothing of ours got into the graph */
	EQUAL(cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
	for (int i = 0; i < 40; i++) {
		launch(&k, NULL);
		launch(&k, stream);
		config.stream = stream;
		EQUAL(cuLaunchKernelEx(&config, &k, NULL, NULL), 0);
		EQUAL(cuLaunchCooperativeKernel(&k, 1, 1, 1, 1, 1, 1, 0, stream, NULL), 0);
		EQUAL(cuLaunchKernel_ptsz(&k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
		EQUAL(cuGraphLaunch(exec, stream), 0);
		EQUAL(cuMemsetD32Async(p, 7, 16, stream), 0);
	}
	EQUAL(launched(), 240);
	EQUAL(real_cuCtxSynchronize(), 0);
	/* 32 ms of work in the longest stream were charged to the container */
	while (atomic_load(&session.container->process[atomic_load(&session.process)].busy_ns[0]) < 32 * (uint64_t)MS)
		sleep_ns(MS);
	/* with 30 % of the time, launches have waited for the rest of it, and that is reported */
	CHECK(atomic_load(&session.device[0].gate->waited_ns) > 0);
}

static void full_share_and_no_neighbour_needs_no_turns(void)
{
	struct stub_kernel k = {1000, NULL};
	begin_512();
	for (int i = 0; i < 100; i++)
		launch(&k, NULL);
	EQUAL(atomic_load(&session.device[0].gate->tracked), false);
	/* a neighbour sits down: from the next look on, turns are taken */
	CHECK(card_tenant(session.device[0].card, "neighbour", 5000, false, now_ns()) >= 0);
	compute_limit_reload(&session.device[0]);
	launch(&k, NULL);
	EQUAL(atomic_load(&session.device[0].gate->tracked), true);
}

static void *launch_many(void *arg)
{
	struct stub_kernel k = {20000, NULL};
	CUstream s;
	(void)arg;
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	for (int round = 0; round < 4; round++) {
		EQUAL(real_cuStreamCreate(&s, 1), 0);
		for (int i = 0; i < 100; i++)
			launch(&k, i % 3 ? s : NULL);
		EQUAL(cuStreamDestroy_v2(s), 0);
	}
	return NULL;
}

static void many_threads_and_streams(void)
{
	pthread_t t[8];
	begin("", "device * memory 536870912 compute 80");
	for (int i = 0; i < 8; i++)
		EQUAL(pthread_create(&t[i], NULL, launch_many, NULL), 0);
	for (int i = 0; i < 8; i++)
		EQUAL(pthread_join(t[i], NULL), 0);
	EQUAL(launched(), 8 * 4 * 100);
}

/* A kernel that ends only when a later launch has begun: holding that back for ever would be a deadlock. */
static void work_in_flight_may_wait_for_a_launch(void)
{
	struct stub_kernel longer = {400 * MS, NULL}, k = {1000, NULL};
	CUstream s2;
	begin("", "device * memory 536870912 compute 10");
	EQUAL(real_cuStreamCreate(&stream, 1), 0);
	EQUAL(real_cuStreamCreate(&s2, 1), 0);
	launch(&longer, stream);
	/* it outlasts the turn by far: launches still trickle through before it ends */
	while (atomic_load(&session.device[0].gate->state) != GATE_CLOSING)
		sleep_ns(MS);
	launch(&k, s2);
	CHECK(atomic_load(&session.device[0].gate->state) == GATE_CLOSING);
}

/* ---- swap ---- */

static void fill(CUdeviceptr p, uint64_t n, unsigned seed)
{
	for (uint64_t i = 0; i < n; i += 4096)
		*(unsigned *)(uintptr_t)(p + i) = seed + (unsigned)i;
}
static bool filled(CUdeviceptr p, uint64_t n, unsigned seed)
{
	for (uint64_t i = 0; i < n; i += 4096)
		if (*(unsigned *)(uintptr_t)(p + i) != seed + (unsigned)i)
			return false;
	return true;
}

static void memory_goes_out_and_comes_back(void)
{
	static const uint64_t sizes[] = {100, 5000, 700000, MiB, 3 * MiB, 40 * MiB, 100, 64 * MiB};
	CUdeviceptr p[8], base;
	size_t size;
	struct swap_result r;
	uint64_t missing, before;

	begin_swap();
	for (int i = 0; i < 8; i++) {
		EQUAL(cuMemAlloc_v2(&p[i], sizes[i]), 0);
		fill(p[i], sizes[i], (unsigned)i * 1000);
	}
	EQUAL(cuMemGetAddressRange_v2(&base, &size, p[2] + 5), 0);
	EQUAL(base, p[2]);
	EQUAL(size, sizes[2]);
	before = used();
	for (int round = 0; round < 3; round++) {
		swap_out(UINT64_MAX, &r);
		CHECK(r.done && swap_is_out());
		EQUAL(r.bytes, before - CONTEXT);
		EQUAL(stub_card_used(0), CONTEXT); /* the card is free of it */
		EQUAL(used(), before);             /* and the container still owes it */
		overhead_refresh(&session.device[0]);
		EQUAL(used(), before);
		swap_in(&r, &missing);
		CHECK(r.done && !swap_is_out());
		for (int i = 0; i < 8; i++)
			CHECK(filled(p[i], sizes[i], (unsigned)i * 1000));
	}
	for (int i = 0; i < 8; i++)
		EQUAL(cuMemFree_v2(p[i]), 0);
	EQUAL(used(), CONTEXT);
	EQUAL(stub_card_used(0), CONTEXT);
}

static void part_of_it_can_go(void)
{
	CUdeviceptr p[4];
	struct swap_result r;
	uint64_t missing;
	begin_swap();
	for (int i = 0; i < 4; i++) {
		EQUAL(cuMemAlloc_v2(&p[i], 32 * MiB), 0);
		fill(p[i], 32 * MiB, (unsigned)i);
	}
	swap_out(40 * MiB, &r);
	EQUAL(r.bytes, 64 * MiB);
	EQUAL(stub_card_used(0), CONTEXT + 64 * MiB);
	swap_out(10 * MiB, &r);
	EQUAL(r.bytes, 32 * MiB);
	setenv("STUB_MEMORY", "134217728", 1); /* the card has become too small for all of it */
	swap_in(&r, &missing);
	CHECK(!r.done && missing > 0 && swap_is_out());
	EQUAL(stub_card_used(0), CONTEXT + 32 * MiB);
	setenv("STUB_MEMORY", "1073741824", 1);
	swap_in(&r, &missing);
	CHECK(r.done);
	for (int i = 0; i < 4; i++)
		CHECK(filled(p[i], 32 * MiB, (unsigned)i));
}

static _Atomic int copied;
static void *copy_back(void *arg)
{
	char c;
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuMemcpyDtoH_v2(&c, *(CUdeviceptr *)arg, 1), 0);
	EQUAL(c, 42);
	atomic_store(&copied, 1);
	return NULL;
}

static void calls_wait_while_it_is_out(void)
{
	CUdeviceptr p;
	struct swap_result r;
	uint64_t missing;
	pthread_t t;

	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 2 * MiB), 0);
	EQUAL(cuMemsetD8_v2(p, 42, 100), 0);
	swap_out(UINT64_MAX, &r);
	CHECK(r.done);
	EQUAL(pthread_create(&t, NULL, copy_back, &p), 0);
	for (int i = 0; i < 50; i++)
		sched_yield();
	EQUAL(atomic_load(&copied), 0);
	swap_in(&r, &missing);
	CHECK(r.done);
	EQUAL(pthread_join(t, NULL), 0);
	EQUAL(atomic_load(&copied), 1);
}

static void what_cannot_move_is_said_before_anything_moves(void)
{
	static const struct { unsigned way; const char *reason; } cases[] = {
		{3, "pool"}, {6, "virtual memory"}, {7, "virtual memory"}, {8, "arrays"}, {11, "external"},
	};
	CUdeviceptr p;
	uint64_t key, missing;
	struct swap_result r;
	CUgraphicsResource g;
	CUipcMemHandle h;

	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 8 * MiB), 0);
	fill(p, 8 * MiB, 5);
	EQUAL(cuIpcGetMemHandle(&h, p), CUDA_ERROR_NOT_SUPPORTED);
	for (unsigned i = 0; i < sizeof cases / sizeof *cases - 1; i++) {
		EQUAL(ways[cases[i].way].take(32 * MiB, &key), 0);
		uint64_t before = stub_card_used(0);
		swap_out(UINT64_MAX, &r);
		CHECK(!r.done && strstr(r.why, cases[i].reason));
		EQUAL(stub_card_used(0), before);
		EQUAL(ways[cases[i].way].give(key), 0);
		swap_out(UINT64_MAX, &r);
		CHECK(r.done);
		swap_in(&r, &missing);
		CHECK(r.done && filled(p, 8 * MiB, 5));
	}
	EQUAL(cuGraphicsGLRegisterBuffer(&g, 1, 0), 0);
	swap_out(UINT64_MAX, &r);
	CHECK(!r.done && !strcmp(r.why, "graphics"));
}

static void without_leave_nothing_swaps(void)
{
	struct swap_result r;
	CUdeviceptr p;
	begin_512();
	EQUAL(cuMemAlloc_v2(&p, MiB), 0);
	swap_out(UINT64_MAX, &r);
	CHECK(!r.done && strstr(r.why, "not allowed"));
}

/* Two containers of 300 MiB on a card of 512 beside their contexts, in turns. */
static void work_in_turns(const char *name, int rounds)
{
	char text[512];
	CUdeviceptr p[12];
	struct stub_kernel k = {MS, NULL};

	snprintf(text, sizeof text, "elastic-gpu 1\ncontainer %s\noversubscribe on\nquantum-ms 50\ndevice * memory 1073741824\n", name);
	snprintf(check_root, sizeof check_root, "%s", getenv("ELASTICGPU_ROOT"));
	check_write("/etc/elastic-gpu/limits", text);
	EQUAL(cuInit(0), 0);
	EQUAL(cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	for (int i = 0; i < 12; i++) {
		EQUAL(cuMemAlloc_v2(&p[i], 25 * MiB), 0);
		EQUAL(cuMemsetD8_v2(p[i], (unsigned char)i, 25 * MiB), 0);
	}
	for (int n = 0; n < rounds; n++) {
		unsigned char c;
		launch(&k, NULL);
		EQUAL(real_cuCtxSynchronize(), 0);
		EQUAL(cuMemcpyDtoH_v2(&c, p[n % 12] + (CUdeviceptr)n, 1), 0);
		EQUAL(c, n % 12);
	}
}

static void two_share_a_card_too_small_for_both(void)
{
	char roots[2][300], command[1400];
	pid_t pids[2];

	setenv("STUB_MEMORY", "671088640", 1);
	for (int i = 0; i < 2; i++) {
		snprintf(roots[i], sizeof roots[i], "%s/c%d", check_root, i);
		snprintf(command, sizeof command, "mkdir -p %s/etc/elastic-gpu %s/run/elastic-gpu && ln -s %s/run/elastic-gpu/cards %s/run/elastic-gpu/cards",
			roots[i], roots[i], check_root, roots[i]);
		CHECK(system(command) == 0);
		CHILD(pids[i], { setenv("ELASTICGPU_ROOT", roots[i], 1); work_in_turns(i ? "b" : "a", 60); });
	}
	check_exit(pids[0]);
	check_exit(pids[1]);
}

/* ---- control ---- */

static bool answer(const char *request, bool trusted, const char *want)
{
	char reply[8192];
	int n = control_answer(request, trusted, reply, sizeof reply);
	EQUAL(n, strlen(reply));
	CHECK(reply[n - 1] == '\n');
	if (strstr(reply, want))
		return true;
	fprintf(stderr, "%s -> %s", request, reply);
	return false;
}

static void the_agent_asks(void)
{
	CUdeviceptr p;
	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 32 * MiB), 0);
	CHECK(answer("hello 1", false, "\"ok\":true,\"protocol\":1"));
	CHECK(answer("hello 2", false, "\"ok\":false,\"protocol\":1"));
	CHECK(answer("stats", false, "\"limit\":536870912,\"used\":100663296,\"held\":33554432,\"overhead\":67108864,\"swapped\":0"));
	CHECK(answer("out", false, "only the agent"));
	CHECK(answer("in", false, "only the agent"));
	CHECK(answer("prepare 1", false, "only the agent"));
	CHECK(answer("prepare 1000", true, "\"ok\":true"));
	CHECK(answer("out", true, "\"ok\":true,\"bytes\":33554432"));
	CHECK(answer("stats", false, "\"out\":true"));
	CHECK(answer("stats", false, "\"swapped\":33554432"));
	CHECK(answer("in", true, "\"ok\":true"));
	check_limits("swap on\n", "device * memory 805306368 compute 25");
	CHECK(answer("limits", false, "\"limit\":805306368"));
	CHECK(answer("stats", false, "\"compute\":25.00"));
	CHECK(answer("make me rich", true, "unknown request"));
	CHECK(answer("", true, "unknown request"));
}

static void the_socket_answers(void)
{
	char command[900];
	begin_512();
	snprintf(command, sizeof command, "build/elastic-gpu-ctl %s/run/elastic-gpu/control/%d.sock stats | grep -q '\"container\":\"test\"'", check_root, (int)getpid());
	CHECK(system(command) == 0);
	snprintf(command, sizeof command, "build/elastic-gpu-ctl %s/run/elastic-gpu/control/%d.sock out | grep -q 'not allowed'", check_root, (int)getpid());
	CHECK(system(command) == 0);
}

static void only_the_agent_may_move_it(void)
{
	char command[900];
	check_write("/etc/elastic-gpu/limits", "elastic-gpu 1\ncontainer test\nswap on\ndevice * memory 536870912\n");
	EQUAL(cuInit(0), 0);
	snprintf(command, sizeof command, "build/elastic-gpu-ctl %s/run/elastic-gpu/control/%d.sock out | grep -q 'only the agent'", check_root, (int)getpid());
	CHECK(system(command) == 0);
}

static void the_driver_checkpoints_by_pid(void)
{
	typedef CUresult (*step)(int, void *);
	EQUAL(((step)driver("cuCheckpointProcessCheckpoint"))(7, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK(system("build/elastic-gpu-ctl checkpoint out 7 | grep -q '\"ok\":true'") == 0);
	CHECK(system("build/elastic-gpu-ctl checkpoint in 7 2>&1 | grep -q 'driver answered 1'") == 0); /* not checkpointed there */
}

MAIN(T(nothing_is_granted_without_limits), T(the_share_is_what_is_seen), T(every_way_to_take_memory_meets_the_limit), T(ways_are_counted_together),
	T(small_print_of_allocation), T(a_reservation_of_host_memory_is_free), T(handles_live_while_they_are_held_or_mapped),
	T(memory_shared_inside_the_container_counts_once), T(graphs_pay_for_their_memory), T(captured_allocations_belong_to_the_graph),
	T(contexts_and_code_count), T(a_context_that_does_not_fit_is_refused), T(limits_change_while_it_runs), T(each_card_has_its_own_limit),
	T(functions_are_found_through_the_driver), T(a_child_starts_afresh), T(two_hundred_processes_start_at_once), T(every_launch_pays_and_gets_through),
	T(full_share_and_no_neighbour_needs_no_turns), T(many_threads_and_streams), T(work_in_flight_may_wait_for_a_launch),
	T(memory_goes_out_and_comes_back), T(part_of_it_can_go), T(calls_wait_while_it_is_out), T(what_cannot_move_is_said_before_anything_moves),
	T(without_leave_nothing_swaps), T(two_share_a_card_too_small_for_both), T(the_agent_asks), T(the_socket_answers), T(only_the_agent_may_move_it),
	T(the_driver_checkpoints_by_pid))
