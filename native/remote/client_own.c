/* Contexts, devices, host memory and errors: what the client answers with something of its own. */
#include <stdlib.h>
#include "client_parts.h"

/* ---- what is carried, and what is not ---- */

/* Attributes of a card by which a program expects what is not carried. */
static const int absent[] = {
	19, 41, 83, 86, 88, 89, 91, 99, 100, 101, 113, 147, /* host memory that the card reaches, one address space, managed memory */
	92, 93, 94, 122, 123, /* a stream that waits for memory, or writes to it */
	96, /* a launch on several cards */
	98, 110, 116, 117, 118, 124, 146, /* other devices that reach the card's memory */
	102, 103, 104, 105, 107, 128, 132, 141, 145, /* virtual memory, handles of it, and of several cards */
	112, 121, 127, 129, /* arrays, tensor maps, functions of the program */
	114, 125, 135, 138, /* what other programs and graphics share */
	115, 119, 142, 143, 144, /* stream-ordered pools: allocations are carried, pools are not */
	130, 136, 137, /* memory as a node of the system, decompression */
};

/* Attributes that somebody may change while the program runs: the time limit of kernels, and who may use the card. */
static bool changes(int attribute) { return attribute == 17 || attribute == 20; }

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice dev)
{
	struct writer w = {.size = 0};
	CUresult r;

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	writer_put(&w, &attribute, sizeof attribute);
	writer_put(&w, &dev, sizeof dev);
	r = (changes(attribute) ? call_sync : call_cached)(CALL_cuDeviceGetAttribute, w.bytes, w.size, value, sizeof *value);
	for (unsigned i = 0; r == CUDA_SUCCESS && i < sizeof absent / sizeof *absent; i++)
		if (absent[i] == attribute)
			*value = 0;
	return r;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
	(void)dev, (void)peer;
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	*can = 0;
	return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : client_start(); }

CUresult call_text(ask_fn ask, unsigned call, const struct writer *w, char *text, int size)
{
	char back[MOST_NAME];
	CUresult r = size > 0 ? ask(call, w->bytes, w->size, back, sizeof back) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS) {
		back[sizeof back - 1] = 0;
		size_t n = strnlen(back, (size_t)size - 1);
		memcpy(text, back, n);
		text[n] = 0;
	}
	return r;
}

/* The driver's words for an error live as long as the program. */
static CUresult error_text(CUresult error, uint32_t name, const char **text)
{
	enum { MOST = 1024 };
	static char *_Atomic known[2][MOST];
	char back[MOST_NAME], *mine, *none = NULL;
	struct { int32_t error; uint32_t name; } args = {error, name};
	CUresult r;

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = NULL;
	if (error < 0 || error >= MOST)
		return CUDA_ERROR_INVALID_VALUE;
	if (!atomic_load(&known[name][error])) {
		r = call_sync(CALL_error_text, &args, sizeof args, back, sizeof back);
		if (r != CUDA_SUCCESS)
			return r;
		back[sizeof back - 1] = 0;
		mine = strdup(back);
		if (!mine || !atomic_compare_exchange_strong(&known[name][error], &none, mine))
			free(mine);
	}
	*text = atomic_load(&known[name][error]);
	return *text ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuGetErrorName(CUresult error, const char **name) { return error_text(error, 1, name); }
CUresult cuGetErrorString(CUresult error, const char **text) { return error_text(error, 0, text); }

/* ---- contexts: each thread has a stack of them; the server knows the topmost ---- */

static __thread struct { uint64_t stack[64]; int depth; uint64_t known; } own;

void contexts_forked(void) { memset(&own, 0, sizeof own); }

static CUresult tell_current(void)
{
	uint64_t top = own.depth ? own.stack[own.depth - 1] : 0;

	if (top == own.known)
		return CUDA_SUCCESS;
	own.known = top;
	return call_async(CALL_lane_context, &top, sizeof top);
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	*ctx = own.depth ? (void *)(uintptr_t)own.stack[own.depth - 1] : NULL;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	if (!ctx || own.depth == (int)(sizeof own.stack / sizeof *own.stack))
		return CUDA_ERROR_INVALID_VALUE;
	own.stack[own.depth++] = id_of(ctx);
	return tell_current();
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	if (!own.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	own.depth--;
	if (ctx)
		*ctx = (void *)(uintptr_t)own.stack[own.depth];
	return tell_current();
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	if (!ctx) {
		own.depth -= own.depth > 0;
		return tell_current();
	}
	own.depth += own.depth == 0;
	own.stack[own.depth - 1] = id_of(ctx);
	return tell_current();
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
	uint64_t id;
	CUresult r = ctx ? call_sync(CALL_retain, &dev, sizeof dev, &id, sizeof id) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		*ctx = (void *)(uintptr_t)id;
	return r;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUresult r = call_sync(CALL_release, &dev, sizeof dev, NULL, 0);

	cached_forget(); /* with the last a context loses its code */
	return r;
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice dev)
{
	struct { uint32_t flags; int32_t dev; } args = {flags, dev};
	uint64_t id;
	CUresult r = ctx ? call_sync(CALL_create_context, &args, sizeof args, &id, sizeof id) : CUDA_ERROR_INVALID_VALUE;

	if (r != CUDA_SUCCESS)
		return r;
	*ctx = (void *)(uintptr_t)id;
	return cuCtxPushCurrent_v2(*ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	uint64_t id = id_of(ctx);
	CUresult r;

	if (own.depth && own.stack[own.depth - 1] == id)
		cuCtxPopCurrent_v2(NULL);
	r = call_sync(CALL_destroy_context, &id, sizeof id, NULL, 0);
	cached_forget();
	return r;
}

/* The later calls that make one, without what they can say of how much of the card it has. */
CUresult cuCtxCreate_v3(CUcontext *ctx, void *affinity, int count, unsigned flags, CUdevice dev)
{
	(void)affinity;
	return count ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(ctx, flags, dev);
}
CUresult cuCtxCreate_v4(CUcontext *ctx, void *params, unsigned flags, CUdevice dev)
{
	return params ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(ctx, flags, dev);
}

/* ---- addresses ---- */

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr)
{
	struct { uint64_t ptr; int32_t attribute; uint32_t unused; } args = {ptr, attribute, 0};
	unsigned bytes = pointer_attribute_bytes(attribute);
	uint64_t value;
	CUresult r;

	if (!data || !bytes)
		return data ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	r = call_sync(CALL_pointer, &args, sizeof args, &value, sizeof value);
	if (r == CUDA_SUCCESS)
		memcpy(data, &value, bytes);
	return r;
}

/* Of an address that is not the card's this says zeroes, and no error. */
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **data, CUdeviceptr ptr)
{
	CUresult r = count && attributes && data ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (unsigned i = 0; r == CUDA_SUCCESS && i < count; i++) {
		r = cuPointerGetAttribute(data[i], attributes[i], ptr);
		if (r == CUDA_ERROR_INVALID_VALUE && data[i]) {
			memset(data[i], 0, pointer_attribute_bytes(attributes[i]));
			r = CUDA_SUCCESS;
		}
	}
	return r;
}

/* A profiler would be beside the card. */
CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }

/* ---- host memory: the program's own; the card does not see it ---- */

CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	enum { DEVICE_MAP = 2 };

	if (!ptr || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & DEVICE_MAP)
		return CUDA_ERROR_NOT_SUPPORTED;
	*ptr = aligned_alloc(4096, ROUND_UP(bytes, 4096));
	return *ptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemAllocHost_v2(void **ptr, size_t bytes) { return cuMemHostAlloc(ptr, bytes, 0); }
CUresult cuMemFreeHost(void *ptr)
{
	free(ptr);
	return CUDA_SUCCESS;
}
