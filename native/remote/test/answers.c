/* What the client answers by itself, and what it refuses, with a driver that has all of calls.tab. */
#include "linked.h"
#include "network.h"

static void start(void)
{
	serve_with(NULL, NULL);
	start_network(); /* sees what is asked */
	atomic_store(&cut_after, LONG_MAX);
	begin();
}

static CUfunction function(CUmodule *mod, const char *name)
{
	CUfunction f;

	EQUAL(cuModuleLoadData(mod, ".version 8.0"), CUDA_SUCCESS);
	EQUAL(cuModuleGetFunction(&f, *mod, name), CUDA_SUCCESS);
	return f;
}

static const char *asked[64];
static unsigned asked_count;

/* Asks twice: the answer is the same, and nothing is sent for the second. */
#define ONCE(name, into, ...) do { \
	unsigned char first_[sizeof into]; \
	memset(into, 0, sizeof into); \
	EQUAL(name(__VA_ARGS__), CUDA_SUCCESS); \
	memcpy(first_, into, sizeof into); \
	memset(into, 0, sizeof into); \
	long before_ = atomic_load(&carried); \
	EQUAL(name(__VA_ARGS__), CUDA_SUCCESS); \
	EQUAL(atomic_load(&carried), before_); \
	CHECK(!memcmp(into, first_, sizeof into)); \
	asked[asked_count++] = #name; \
} while (0)

/* Attributes by which a program would expect what is not carried, of CUDA 13.0. */
static const int not_carried[] = {
	19 /* CAN_MAP_HOST_MEMORY */, 41 /* UNIFIED_ADDRESSING */, 83 /* MANAGED_MEMORY */, 88 /* PAGEABLE_MEMORY_ACCESS */, 92 /* CAN_USE_STREAM_MEM_OPS */,
	98 /* CAN_FLUSH_REMOTE_WRITES */, 99 /* HOST_REGISTER */, 102 /* VIRTUAL_MEMORY_MANAGEMENT */, 103 /* HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */,
	110 /* GPU_DIRECT_RDMA_WITH_CUDA_VMM */, 112 /* SPARSE_CUDA_ARRAY */, 115 /* MEMORY_POOLS */, 116 /* GPU_DIRECT_RDMA */, 119 /* MEMPOOL_SUPPORTED_HANDLE_TYPES */,
	121 /* DEFERRED_MAPPING_CUDA_ARRAY */, 122 /* CAN_USE_64_BIT_STREAM_MEM_OPS */, 123 /* CAN_USE_STREAM_WAIT_VALUE_NOR */, 124 /* DMA_BUF */, 125 /* IPC_EVENT */,
	127 /* TENSOR_MAP_ACCESS */, 128 /* HANDLE_TYPE_FABRIC */, 132 /* MULTICAST */,
};

static void cached(void)
{
	int n[1], capability[2];
	char text[64];
	CUdevice dev[1];
	CUuuid uuid[1];
	CUmodule mod;
	CUfunction f;

	start();
	f = function(&mod, "add");
	ONCE(cuDriverGetVersion, n, n);
	ONCE(cuDeviceGetCount, n, n);
	EQUAL(n[0], 2);
	ONCE(cuFuncGetAttribute, n, n, 4, f);
	EQUAL(n[0], 4);
	for (int d = 0; d < 2; d++) {
		ONCE(cuDeviceGet, dev, dev, d);
		EQUAL(dev[0], d);
		ONCE(cuDeviceGetName, text, text, sizeof text, d);
		EQUAL(text[5], '0' + d);
		ONCE(cuDeviceGetUuid, uuid, uuid, d);
		ONCE(cuDeviceGetUuid_v2, uuid, uuid, d);
		EQUAL(uuid[0].bytes[15], 0x20 + d);
		ONCE(cuDeviceGetPCIBusId, text, text, sizeof text, d);
		EQUAL(text[6], '0' + d);
		ONCE(cuDeviceComputeCapability, capability, &capability[0], &capability[1], d);
		EQUAL(capability[1], d);
		ONCE(cuDeviceGetAttribute, n, n, 75, d);
		EQUAL(n[0], 75000 + d);
		ONCE(cuDeviceGetAttribute, n, n, 41, d);
		EQUAL(n[0], 0);
	}
	for (unsigned i = 0; i < sizeof not_carried / sizeof *not_carried; i++) {
		EQUAL(cuDeviceGetAttribute(n, not_carried[i], 0), CUDA_SUCCESS);
		EQUAL(n[0], 0);
	}
	EQUAL(cuDeviceGetName(text, 4, 1), CUDA_SUCCESS);
	CHECK(!strcmp(text, "Stu"));
	EQUAL(cuDeviceGetName(text, 0, 1), CUDA_ERROR_INVALID_VALUE);
	for (int i = 0; i < 2; i++) /* an error is asked for again */
		EQUAL(cuDeviceGet(dev, 2), CUDA_ERROR_INVALID_DEVICE);
#define IS_CACHED(symbol, mode) if (!strcmp(#mode, "cached")) { \
		bool found_ = false; \
		for (unsigned i = 0; i < asked_count; i++) \
			found_ |= !strcmp(asked[i], #symbol); \
		if (!found_) fprintf(stderr, "%s is cached, and not called here\n", #symbol); \
		CHECK(found_); }
	EACH_CALL(IS_CACHED)
}

/* What may change is asked again, and what was about an object that is gone. */
static void changing(void)
{
	size_t before, after, total;
	CUmodule mod, other;
	CUdeviceptr p;
	CUfunction f;
	int n = 0, status;

	start();
	f = function(&mod, "spin");
	for (int set = 64; set <= 128; set += 64) {
		EQUAL(cuFuncSetAttribute(f, 8, set), CUDA_SUCCESS);
		EQUAL(cuFuncGetAttribute(&n, 8, f), CUDA_SUCCESS);
		EQUAL(n, set);
	}
	EQUAL(cuFuncGetAttribute(&n, 4, f), CUDA_SUCCESS);
	CHECK(function(&other, "spin") && other != mod);
	EQUAL(cuMemGetInfo_v2(&before, &total), CUDA_SUCCESS);
	EQUAL(cuMemAlloc_v2(&p, 1 << 20), CUDA_SUCCESS);
	EQUAL(cuMemGetInfo_v2(&after, &total), CUDA_SUCCESS);
	EQUAL(before - after, 1 << 20);
	for (int i = 0; i < 2; i++) { /* a claim's limits may change, and so may who may use the card */
		long sent = atomic_load(&carried);
		EQUAL(cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
		CHECK(atomic_load(&carried) > sent);
		sent = atomic_load(&carried);
		EQUAL(cuDeviceGetAttribute(&n, 20, 0), CUDA_SUCCESS);
		CHECK(atomic_load(&carried) > sent);
	}
	EQUAL(cuModuleUnload(other), CUDA_SUCCESS);
	EQUAL(cuModuleUnload(mod), CUDA_SUCCESS);
	EQUAL(cuFuncGetAttribute(&n, 4, f), CUDA_ERROR_INVALID_HANDLE);
	for (int i = 0; i < 2; i++) { /* answers take each other's places */
		for (int attribute = 200; attribute < 2200; attribute++) {
			EQUAL(cuDeviceGetAttribute(&n, attribute, attribute % 2), CUDA_SUCCESS);
			EQUAL(n, 1000 * attribute + attribute % 2);
		}
	}
	EQUAL(cuDeviceGetCount(&n), CUDA_SUCCESS);
	pid_t pid = fork();
	if (pid == 0) {
		EQUAL(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
		begin();
		EQUAL(cuDeviceGetCount(&n), CUDA_SUCCESS);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	EQUAL(status, 0);
	CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
	serve_with(NULL, NULL); /* another one knows nothing of the session */
	address_is("network");
	EQUAL(cuMemGetInfo_v2(&after, &total), CUDA_ERROR_DEVICE_UNAVAILABLE);
	EQUAL(cuDeviceGetCount(&n), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

static void *ask_often(void *arg)
{
	CUmodule mod;
	int n;

	EQUAL(cuCtxSetCurrent(arg), CUDA_SUCCESS);
	for (int i = 0; i < 200; i++) {
		CUfunction f = function(&mod, "store");
		EQUAL(cuFuncGetAttribute(&n, i % 8, f), CUDA_SUCCESS);
		EQUAL(n, 100 + i % 8);
		EQUAL(cuDeviceGetAttribute(&n, 200 + i % 7, i % 2), CUDA_SUCCESS);
		EQUAL(n, 1000 * (200 + i % 7) + i % 2);
	}
	return NULL;
}

/* Threads ask while others load code. */
static void threads(void)
{
	CUcontext ctx;
	pthread_t t[4];

	start();
	EQUAL(cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, ask_often, ctx) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

/* What a graph copies it copies when it is launched, from the program's memory as it is then. That is refused: the graph would
 * copy from where the server had these bytes once. */
static void copies_in_graphs(void)
{
	enum { NOT_IN_CAPTURE = 900 };
	static unsigned char mine[1 << 20];
	CUdeviceptr p;
	CUstream stream, other;
	CUgraph graph;

	start();
	EQUAL(cuMemAlloc_v2(&p, sizeof mine), CUDA_SUCCESS);
	EQUAL(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	EQUAL(cuStreamCreate(&other, 1), CUDA_SUCCESS);
	EQUAL(cuStreamBeginCapture_v2(stream, 2), CUDA_SUCCESS);
	EQUAL(cuMemcpyHtoDAsync_v2(p, mine, 100, stream), CUDA_SUCCESS);
	EQUAL(cuStreamSynchronize(other), NOT_IN_CAPTURE); /* the error of the copy; what waits for the context spoils a capture */
	EQUAL(cuMemcpyHtoDAsync_v2(p, mine, sizeof mine, stream), NOT_IN_CAPTURE);
	EQUAL(cuMemcpyDtoHAsync_v2(mine, p, sizeof mine, stream), NOT_IN_CAPTURE);
	EQUAL(cuMemcpyDtoH_v2(mine, p, sizeof mine), CUDA_SUCCESS); /* on another stream */
	EQUAL(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	EQUAL(cuMemcpyHtoDAsync_v2(p, mine, 100, stream), CUDA_SUCCESS);
	EQUAL(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

/* A thread's own stream is one of its context: another context that gets the number of one that is gone has another. */
static void own_streams(void)
{
	CUcontext ctx, before = NULL;
	unsigned flags;

	start();
	for (int i = 0; i < 8; i++) {
		EQUAL(cuCtxCreate_v2(&ctx, 0, 1), CUDA_SUCCESS);
		CHECK(!before || ctx == before);
		before = ctx;
		EQUAL(cuStreamGetFlags_ptsz(NULL, &flags), CUDA_SUCCESS);
		EQUAL(cuCtxDestroy_v2(ctx), CUDA_SUCCESS);
	}
}

MAIN(T(cached), T(changing), T(threads), T(own_streams), T(copies_in_graphs))
