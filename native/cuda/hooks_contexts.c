/* Hooks of cuInit, contexts and code. */
#include "array_memory.h"
#include "blocks.h"
#include "copy_streams.h"
#include "driver_symbols.h"
#include "graph_memory.h"
#include "handlers.h"
#include "ledger.h"
#include "memory_budget.h"
#include "movable_memory.h"
#include "mps.h"
#include "overhead.h"
#include "pool_memory.h"
#include "shared_imports.h"
#include "start.h"
#include "streams.h"
#include "swap.h"
#include "system.h"

CUresult on_cuInit(fn_cuInit real, unsigned flags)
{
	struct limits l;
	CUresult r;

	if (!session_view(&l))
		return CUDA_ERROR_NO_DEVICE; /* nothing granted: the driver is not even woken */
	mps_before_init(&l);
	r = real(flags);
	if (r == CUDA_SUCCESS && !library_start())
		return CUDA_ERROR_NO_DEVICE;
	return r;
}

#define MAKE_CONTEXT(dev, call, undo) do { \
	struct device *d_ = library_start() ? device_of(dev) : NULL; \
	uint64_t taken_ = 0; \
	CUresult r_; \
	if (!d_ || has_context(d_)) \
		return (call); \
	if (!context_begin(d_, &taken_)) \
		return CUDA_ERROR_OUT_OF_MEMORY; \
	r_ = (call); \
	if (!context_end(d_, taken_, r_ == CUDA_SUCCESS) && r_ == CUDA_SUCCESS) { \
		undo; \
		overhead_set(d_, 0); \
		r_ = CUDA_ERROR_OUT_OF_MEMORY; \
	} \
	return r_; \
} while (0)

CUresult on_cuCtxCreate(fn_cuCtxCreate real, CUcontext *ctx, unsigned flags, CUdevice dev)
{
	MAKE_CONTEXT(dev, real(ctx, flags, dev), real_cuCtxDestroy_v2(*ctx));
}

CUresult on_cuCtxCreate_v3(fn_cuCtxCreate_v3 real, CUcontext *ctx, void *affinity, int count, unsigned flags, CUdevice dev)
{
	MAKE_CONTEXT(dev, real(ctx, affinity, count, flags, dev), real_cuCtxDestroy_v2(*ctx));
}

CUresult on_cuCtxCreate_v4(fn_cuCtxCreate_v4 real, CUcontext *ctx, void *params, unsigned flags, CUdevice dev)
{
	MAKE_CONTEXT(dev, real(ctx, params, flags, dev), real_cuCtxDestroy_v2(*ctx));
}

static CUresult primary_made(CUresult r, CUcontext *ctx, CUdevice dev)
{
	struct device *d = r == CUDA_SUCCESS ? device_of(dev) : NULL;
	if (d) {
		atomic_store(&d->primary, *ctx);
		atomic_fetch_add(&d->retained, 1);
	}
	return r;
}

CUresult on_cuDevicePrimaryCtxRetain(fn_cuDevicePrimaryCtxRetain real, CUcontext *ctx, CUdevice dev)
{
	MAKE_CONTEXT(dev, primary_made(real(ctx, dev), ctx, dev), real_cuDevicePrimaryCtxRelease_v2(dev));
}

/* With its context go a process's plain allocations; the rest is of the process, or is forgotten with what it belongs to. */
#define GOES_WITH_CONTEXT (1u << HOLD_PTR | 1u << HOLD_ARRAY | 1u << HOLD_GRAPH | 1u << HOLD_EXEC | 1u << HOLD_IPC | \
	1u << HOLD_EXTERNAL | 1u << HOLD_MANAGED | 1u << HOLD_OWN)

static void collect_of_context(struct holding *h, void *arg)
{
	struct { CUcontext ctx; struct holding *own[64]; int n; } *gone = arg;

	if (h->ctx != gone->ctx || !(GOES_WITH_CONTEXT & 1u << h->kind))
		return;
	if (h->kind != HOLD_OWN)
		holding_give_back(h);
	else if (gone->n < 64)
		gone->own[gone->n++] = h;
}

static void context_gone(struct device *d, CUcontext ctx)
{
	struct { CUcontext ctx; struct holding *own[64]; int n; } gone;

	if (!d || !ctx || atomic_load(&session.process) < 0)
		return;
	copy_streams_forget(ctx);
	pooled_forget_context(ctx);
	arrays_forget_context(ctx);
	graph_memory_forget_context(ctx);
	shared_forget_context(ctx);
	movable_forget_context(ctx);
	do {
		gone.ctx = ctx;
		gone.n = 0;
		ledger_lock();
		ledger_each(collect_of_context, &gone);
		ledger_unlock();
		for (int i = 0; i < gone.n; i++)
			movable_drop(gone.own[i]);
	} while (gone.n);
	blocks_forget_context(ctx);
	overhead_refresh(d);
}

CUresult on_cuCtxDestroy(fn_cuCtxDestroy real, CUcontext ctx)
{
	struct device *d = device_current();
	CUresult r;

	swap_pause(ctx);
	context_forget(ctx);
	r = real(ctx);
	if (r == CUDA_SUCCESS)
		context_gone(d, ctx);
	swap_resume();
	return r;
}

static CUresult primary_dropped(CUresult r, CUdevice dev)
{
	struct device *d = r == CUDA_SUCCESS ? device_of(dev) : NULL;
	unsigned flags;
	int active = 1;

	if (d && real_cuDevicePrimaryCtxGetState && real_cuDevicePrimaryCtxGetState(dev, &flags, &active) == CUDA_SUCCESS && !active) {
		context_gone(d, atomic_load(&d->primary));
		overhead_set(d, 0);
	}
	return r;
}

CUresult on_cuDevicePrimaryCtxRelease(fn_cuDevicePrimaryCtxRelease real, CUdevice dev)
{
	struct device *d = device_of(dev);
	CUresult r;

	swap_pause(d ? atomic_load(&d->primary) : NULL);
	if (d && atomic_fetch_sub(&d->retained, 1) == 1)
		context_forget(atomic_load(&d->primary));
	r = primary_dropped(real(dev), dev);
	swap_resume();
	return r;
}

CUresult on_cuDevicePrimaryCtxReset(fn_cuDevicePrimaryCtxReset real, CUdevice dev)
{
	struct device *d = device_of(dev);
	CUresult r;

	swap_pause(d ? atomic_load(&d->primary) : NULL);
	if (d)
		context_forget(atomic_load(&d->primary));
	r = primary_dropped(real(dev), dev);
	swap_resume();
	return r;
}

/* Programs load code in hundreds of pieces: looking every 50 ms is enough, the control thread looks again later. */
static void code_changed(void)
{
	static _Atomic int64_t last;
	int64_t now = now_ns(), before = atomic_load(&last);
	struct device *d = device_current();

	if (d && atomic_load(&session.process) >= 0 && now - before > 50 * MS && atomic_compare_exchange_strong(&last, &before, now))
		overhead_refresh(d);
}

#define LOADING(call) do { \
	CUresult r_ = (call); \
	if (r_ == CUDA_SUCCESS) \
		code_changed(); \
	return r_; \
} while (0)

CUresult on_cuModuleLoad(fn_cuModuleLoad real, CUmodule *mod, const char *name) { LOADING(real(mod, name)); }

CUresult on_cuModuleLoadData(fn_cuModuleLoadData real, CUmodule *mod, const void *image) { LOADING(real(mod, image)); }

CUresult on_cuModuleLoadDataEx(fn_cuModuleLoadDataEx real, CUmodule *mod, const void *image, unsigned count, int *options, void **values)
{
	LOADING(real(mod, image, count, options, values));
}

CUresult on_cuModuleLoadFatBinary(fn_cuModuleLoadFatBinary real, CUmodule *mod, const void *image) { LOADING(real(mod, image)); }

CUresult on_cuModuleUnload(fn_cuModuleUnload real, CUmodule mod) { LOADING(real(mod)); }

CUresult on_cuLibraryLoadData(fn_cuLibraryLoadData real, CUlibrary *lib, const void *code, int *jit, void **jit_values, unsigned jit_count, int *options, void **values, unsigned count)
{
	LOADING(real(lib, code, jit, jit_values, jit_count, options, values, count));
}

CUresult on_cuLibraryLoadFromFile(fn_cuLibraryLoadFromFile real, CUlibrary *lib, const char *name, int *jit, void **jit_values, unsigned jit_count, int *options, void **values, unsigned count)
{
	LOADING(real(lib, name, jit, jit_values, jit_count, options, values, count));
}

CUresult on_cuLibraryUnload(fn_cuLibraryUnload real, CUlibrary lib) { LOADING(real(lib)); }
