/* cuInit, contexts and code: the memory the driver takes for itself, which nobody asked for by size. */
#include <string.h>
#include <unistd.h>
#include "elastic.h"

#define CONTEXT_GUESS (512 * MiB) /* where NVML does not say: about what a context takes on a data-centre card */

CUresult on_cuInit(fn_cuInit real, unsigned flags)
{
	struct limits l;
	CUresult r;

	if (!session_view(&l))
		return CUDA_ERROR_NO_DEVICE; /* nothing granted: the driver is not even woken */
	r = real(flags);
	if (r == CUDA_SUCCESS && !session_start())
		return CUDA_ERROR_NO_DEVICE;
	return r;
}

static CUresult found(CUresult r, const char *symbol, void **pfn, int version, uint64_t flags)
{
	void *hook;

	if (r != CUDA_SUCCESS || !pfn || !*pfn || !symbol)
		return r;
	hook = entry_for_address(symbol, *pfn, version, flags & CU_GET_PROC_PER_THREAD);
	if (hook)
		*pfn = hook;
	return r;
}

CUresult on_cuGetProcAddress(fn_cuGetProcAddress real, const char *symbol, void **pfn, int version, uint64_t flags)
{
	return found(real(symbol, pfn, version, flags), symbol, pfn, version, flags);
}

CUresult on_cuGetProcAddress_v2(fn_cuGetProcAddress_v2 real, const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
	return found(real(symbol, pfn, version, flags, status), symbol, pfn, version, flags);
}

static _Atomic uint64_t *my(struct device *d, _Atomic uint64_t *row)
{
	return &row[d->index];
}
#define ROW(field) session.region->process[atomic_load(&session.process)].field

/*
 * What the driver says this process uses, less what it asked for, is overhead. Allocations that come or go while we
 * look would be taken for overhead: then the reading is thrown away. Managed memory may be on the card or not: while
 * there is some, overhead is only ever raised.
 */
void overhead_refresh(struct device *d)
{
	uint64_t before = atomic_load(&d->changes), was = atomic_load(my(d, ROW(overhead))), used, asked, excess;

	if (swap_is_busy() || !overhead_by_nvml(d, &used))
		return;
	asked = atomic_load(my(d, ROW(held))) - atomic_load(my(d, ROW(swapped)));
	excess = used > asked ? used - asked : 0;
	if (swap_is_busy() || atomic_load(&d->changes) != before || (excess < was && (atomic_load(&d->managed) || !excess)))
		return;
	/* Less may only mean that an allocation is charged and not made yet: it must be seen twice with nothing between. */
	if (excess < was && (atomic_exchange(&d->lower, excess) != excess || atomic_exchange(&d->lower_at, before) != before))
		return;
	region_set_overhead(session.region, atomic_load(&session.process), d->index, excess);
}

static bool has_context(struct device *d)
{
	return atomic_load(my(d, ROW(overhead))) != 0;
}

/* Room for a context is taken before the driver makes it: as much as the last one took, or alone if there was none. */
static bool context_begin(struct device *d, uint64_t *taken)
{
	int process = atomic_load(&session.process);

	while (!(*taken = atomic_load(my(d, session.region->context_bytes)))) {
		if (region_first_context(session.region, process, d->index))
			return true;
		sleep_ns(MS);
	}
	return charge(d, *taken);
}

/* What it took is read from the driver; false if that is more than there is room for. */
static bool context_end(struct device *d, uint64_t taken, bool made)
{
	int process = atomic_load(&session.process);
	uint64_t used, bytes = 0;

	if (made) {
		bool known = overhead_by_nvml(d, &used);
		uint64_t held = atomic_load(my(d, ROW(held))) - taken;
		bytes = known && used > held ? used - held : known ? taken : CONTEXT_GUESS;
		region_set_overhead(session.region, process, d->index, bytes);
	}
	if (taken)
		refund(d, taken);
	region_context_known(session.region, process, d->index, bytes);
	return region_used(session.region, d->index) <= atomic_load(&d->limit);
}

#define MAKE_CONTEXT(dev, call, undo) do { \
	struct device *d_ = session_start() ? device_of(dev) : NULL; \
	uint64_t taken_ = 0; \
	CUresult r_; \
	if (!d_ || has_context(d_)) \
		return (call); \
	if (!context_begin(d_, &taken_)) \
		return CUDA_ERROR_OUT_OF_MEMORY; \
	r_ = (call); \
	if (!context_end(d_, taken_, r_ == CUDA_SUCCESS) && r_ == CUDA_SUCCESS) { \
		undo; \
		region_set_overhead(session.region, atomic_load(&session.process), d_->index, 0); \
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
		d->primary = *ctx;
		atomic_fetch_add(&d->retained, 1);
	}
	return r;
}

CUresult on_cuDevicePrimaryCtxRetain(fn_cuDevicePrimaryCtxRetain real, CUcontext *ctx, CUdevice dev)
{
	MAKE_CONTEXT(dev, primary_made(real(ctx, dev), ctx, dev), real_cuDevicePrimaryCtxRelease_v2(dev));
}

/* With its context go a process's plain allocations. */
static void collect_of_context(struct holding *h, void *arg)
{
	struct { CUcontext ctx; struct holding *own[64]; int n; } *gone = arg;

	if (h->ctx != gone->ctx || h->kind == HOLD_VMM || h->kind == HOLD_MAP || h->kind == HOLD_POOL)
		return;
	if (h->kind != HOLD_OWN)
		give_back(h);
	else if (gone->n < 64)
		gone->own[gone->n++] = h;
}

static void context_gone(struct device *d, CUcontext ctx)
{
	struct { CUcontext ctx; struct holding *own[64]; int n; } gone;

	if (!d || !ctx || atomic_load(&session.process) < 0)
		return;
	do {
		gone.ctx = ctx;
		gone.n = 0;
		ledger_lock();
		ledger_each(collect_of_context, &gone);
		ledger_unlock();
		for (int i = 0; i < gone.n; i++)
			swap_free(gone.own[i]);
	} while (gone.n);
	overhead_refresh(d);
}

CUresult on_cuCtxDestroy(fn_cuCtxDestroy real, CUcontext ctx)
{
	struct device *d = device_current();
	CUresult r;

	context_forget(ctx);
	r = real(ctx);
	if (r == CUDA_SUCCESS)
		context_gone(d, ctx);
	return r;
}

static CUresult primary_dropped(CUresult r, CUdevice dev)
{
	struct device *d = r == CUDA_SUCCESS ? device_of(dev) : NULL;
	unsigned flags;
	int active = 1;

	if (d && real_cuDevicePrimaryCtxGetState && real_cuDevicePrimaryCtxGetState(dev, &flags, &active) == CUDA_SUCCESS && !active) {
		context_gone(d, d->primary);
		region_set_overhead(session.region, atomic_load(&session.process), d->index, 0);
	}
	return r;
}

CUresult on_cuDevicePrimaryCtxRelease(fn_cuDevicePrimaryCtxRelease real, CUdevice dev)
{
	struct device *d = device_of(dev);

	if (d && atomic_fetch_sub(&d->retained, 1) == 1)
		context_forget(d->primary);
	return primary_dropped(real(dev), dev);
}

CUresult on_cuDevicePrimaryCtxReset(fn_cuDevicePrimaryCtxReset real, CUdevice dev)
{
	struct device *d = device_of(dev);

	if (d)
		context_forget(d->primary);
	return primary_dropped(real(dev), dev);
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

CUresult on_cuStreamDestroy(fn_cuStreamDestroy real, CUstream stream)
{
	stream_forget(stream);
	return real(stream);
}

CUresult on_cuStreamBeginCapture_v1(fn_cuStreamBeginCapture real, CUstream stream)
{
	CUresult r;

	stream_before_capture(stream);
	capture_count(1);
	r = real(stream);
	if (r != CUDA_SUCCESS)
		capture_count(-1);
	return r;
}

CUresult on_cuStreamBeginCapture(fn_cuStreamBeginCapture_v2 real, CUstream stream, int mode)
{
	CUresult r;

	stream_before_capture(stream);
	capture_count(1);
	r = real(stream, mode);
	if (r != CUDA_SUCCESS)
		capture_count(-1);
	return r;
}

CUresult on_cuStreamBeginCaptureToGraph(fn_cuStreamBeginCaptureToGraph real, CUstream stream, CUgraph graph, const CUgraphNode *deps, const void *edges, size_t count, int mode)
{
	CUresult r;

	stream_before_capture(stream);
	capture_count(1);
	r = real(stream, graph, deps, edges, count, mode);
	if (r != CUDA_SUCCESS)
		capture_count(-1);
	return r;
}

/* Ends the capture also when it answers that the capture was spoilt; errors about the call itself leave it on. */
CUresult on_cuStreamEndCapture(fn_cuStreamEndCapture real, CUstream stream, CUgraph *graph)
{
	bool was = stream_capturing(stream);
	CUresult r = real(stream, graph);

	if (was && !stream_capturing(stream))
		capture_count(-1);
	if (graph)
		graph_captured(stream, r == CUDA_SUCCESS ? *graph : NULL);
	return r;
}
