/*
 * libcuda.so.1 for the test that calls every row of calls.tab: the driver of the library's tests, and what that one does not
 * need. What is set can be asked for here, so that a parameter that goes astray shows.
 */
#define cuDeviceGetAttribute stub_device_attribute
#define cuDevicePrimaryCtxGetState stub_primary_state
#define cuStreamCreate stub_stream_create
#define cuCtxDestroy_v2 stub_destroy_context
#define cuModuleLoadFatBinary stub_load_fat_binary
#define cuModuleLoadDataEx stub_load_with_options
#define cuMemcpyHtoDAsync_v2 stub_copy_to_card
#include <stdbool.h>
#include "../../cuda/test/stub_cuda.c"
#undef cuDeviceGetAttribute
#undef cuDevicePrimaryCtxGetState
#undef cuStreamCreate
#undef cuCtxDestroy_v2
#undef cuModuleLoadFatBinary
#undef cuModuleLoadDataEx
#undef cuMemcpyHtoDAsync_v2

/* ---- devices and contexts ---- */

static _Atomic unsigned primary_flags[4];
static _Atomic int cache_config[4];
static _Atomic size_t limits[4][8];

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice d)
{
	if (attribute <= 0 || !is_device(d))
		return attribute <= 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
	*value = 1000 * attribute + d;
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice d)
{
	snprintf(id, (size_t)size, "0000:%02X:00.0", 16 + (unsigned)d);
	return is_device(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned flags)
{
	if (!is_device(d))
		return CUDA_ERROR_INVALID_DEVICE;
	primary_flags[d] = flags;
	return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active)
{
	CUresult r = stub_primary_state(d, flags, active);
	if (r == CUDA_SUCCESS)
		*flags = primary_flags[d];
	return r;
}
API CUresult cuCtxGetFlags(unsigned *flags) { NEED_CONTEXT(); *flags = primary_flags[stub_current()->dev]; return CUDA_SUCCESS; }
API CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned *version)
{
	struct context *c = ctx ? ctx : stub_current();
	if (!c)
		return CUDA_ERROR_INVALID_CONTEXT;
	*version = 3020 + (unsigned)c->dev;
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetLimit(size_t *value, int limit)
{
	NEED_CONTEXT();
	if (limit < 0 || limit > 7)
		return CUDA_ERROR_INVALID_VALUE;
	*value = limits[stub_current()->dev][limit];
	return CUDA_SUCCESS;
}
API CUresult cuCtxSetLimit(int limit, size_t value)
{
	NEED_CONTEXT();
	if (limit < 0 || limit > 7)
		return CUDA_ERROR_INVALID_VALUE;
	limits[stub_current()->dev][limit] = value;
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetCacheConfig(int *config) { NEED_CONTEXT(); *config = cache_config[stub_current()->dev]; return CUDA_SUCCESS; }
API CUresult cuCtxSetCacheConfig(int config) { NEED_CONTEXT(); cache_config[stub_current()->dev] = config; return CUDA_SUCCESS; }
API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) { NEED_CONTEXT(); *least = 0; *greatest = -5; return CUDA_SUCCESS; }

/* ---- code ---- */

#define FUNCTIONS (sizeof named / sizeof *named)
#define SETTABLE 8  /* the dynamic shared memory that a launch may have; the next is the carveout */
#define CACHE 100   /* no driver says it */
static _Atomic int function_attributes[FUNCTIONS][3];

static unsigned index_of_function(CUfunction f)
{
	unsigned i = 0;
	while (i < FUNCTIONS && named[i].kernel != f)
		i++;
	return i;
}
API CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction f)
{
	unsigned i = index_of_function(f);
	if (i == FUNCTIONS)
		return CUDA_ERROR_INVALID_HANDLE;
	if (attribute == CACHE)
		*value = function_attributes[i][2];
	else if (attribute == SETTABLE || attribute == SETTABLE + 1)
		*value = function_attributes[i][attribute - SETTABLE];
	else
		*value = 100 * (int)i + attribute;
	return CUDA_SUCCESS;
}
API CUresult cuFuncSetAttribute(CUfunction f, int attribute, int value)
{
	unsigned i = index_of_function(f);
	if (i == FUNCTIONS || (attribute != SETTABLE && attribute != SETTABLE + 1))
		return CUDA_ERROR_INVALID_VALUE;
	function_attributes[i][attribute - SETTABLE] = value;
	return CUDA_SUCCESS;
}
API CUresult cuFuncSetCacheConfig(CUfunction f, int config)
{
	unsigned i = index_of_function(f);
	if (i == FUNCTIONS)
		return CUDA_ERROR_INVALID_HANDLE;
	function_attributes[i][2] = config;
	return CUDA_SUCCESS;
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction f, int threads, size_t shared, unsigned flags)
{
	if (index_of_function(f) == FUNCTIONS || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = 100000 * (int)flags + 1000 * (int)(shared >> 10) + 2048 / threads;
	return CUDA_SUCCESS;
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads, size_t shared)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared, 0);
}
/* Text stays text, and the first option's number is put before it. */
API CUresult cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, int *options, void **values)
{
	char text[128];
	if (*(const char *)image != '.' || !n)
		return code_load(m, image);
	snprintf(text, sizeof text, ".option %d of %u is %u %.64s", options[0], n, (unsigned)(uintptr_t)values[0], (const char *)image);
	return code_load(m, text);
}
API CUresult cuModuleLoadFatBinary(CUmodule *m, const void *image) { return code_load(m, image); }

/* ---- memory of the program, streams ---- */

API CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	if (!ptr || !bytes || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	*ptr = malloc(bytes);
	return *ptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API CUresult cuMemAllocHost_v2(void **ptr, size_t bytes) { return cuMemHostAlloc(ptr, bytes, 0); }
API CUresult cuMemFreeHost(void *ptr) { free(ptr); return CUDA_SUCCESS; }

/* How streams were made. They are few, and none is asked about after its end. */
static struct { CUstream stream; struct context *context; unsigned flags; int priority; bool gone; } made[4096];
static _Atomic unsigned made_count;

API CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority)
{
	unsigned n = atomic_fetch_add(&made_count, 1) % (sizeof made / sizeof *made);
	CUresult r = stub_stream_create(s, flags);
	made[n].stream = *s;
	made[n].context = stub_current();
	made[n].gone = false;
	made[n].flags = flags;
	made[n].priority = priority;
	return r;
}
API CUresult cuStreamCreate(CUstream *s, unsigned flags) { return cuStreamCreateWithPriority(s, flags, 0); }

static int how_made(CUstream s)
{
	for (int i = (int)(sizeof made / sizeof *made) - 1; i >= 0; i--)
		if (s && made[i].stream == s)
			return i;
	return -1;
}
API CUresult cuStreamGetPriority(CUstream s, int *priority) { *priority = how_made(s) < 0 ? 0 : made[how_made(s)].priority; return CUDA_SUCCESS; }
/* A stream ends with its context. */
API CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	for (unsigned i = 0; i < sizeof made / sizeof *made; i++)
		made[i].gone |= made[i].context == ctx;
	return stub_destroy_context(ctx);
}
API CUresult cuStreamGetFlags(CUstream s, unsigned *flags)
{
	if (how_made(s) >= 0 && made[how_made(s)].gone)
		return CUDA_ERROR_INVALID_HANDLE;
	*flags = how_made(s) < 0 ? 0 : made[how_made(s)].flags;
	return CUDA_SUCCESS;
}
API CUresult cuStreamQuery(CUstream s)
{
	if (!stream_of(s))
		return CUDA_ERROR_INVALID_CONTEXT;
	return atomic_load(&stream_of(s)->done) <= stub_now() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
	struct stream *st = stream_of(s);
	if (!st || flags)
		return st ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
	if (atomic_load(&st->done) < atomic_load(&((struct event *)e)->done))
		atomic_store(&st->done, atomic_load(&((struct event *)e)->done));
	return CUDA_SUCCESS;
}

/* A copy in a capture is a node of the graph: nothing is copied now, and what it would copy later lies where it lay. */
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
	struct graph *g = stub_capture(s);
	if (!g)
		return stub_copy_to_card(to, from, n, s);
	g->nodes++;
	return CUDA_SUCCESS;
}

/* Second names that the library's tests do not look for. */
#define SECOND(name) __asm__(".text\n.globl " #name "_ptsz\n.type " #name "_ptsz, @function\n" #name "_ptsz: jmp " #name "\n");
SECOND(cuEventRecord)
SECOND(cuStreamGetFlags)
SECOND(cuStreamGetPriority)
SECOND(cuStreamIsCapturing)
SECOND(cuStreamQuery)
SECOND(cuStreamWaitEvent)
