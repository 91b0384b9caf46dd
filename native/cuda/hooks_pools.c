/* Hooks of stream-ordered pools. */
#include "graph_memory.h"
#include "handlers.h"
#include "memory_calls.h"
#include "movable_memory.h"
#include "oversubscribe.h"
#include "pool_memory.h"
#include "pools.h"
#include "start.h"
#include "streams.h"
#include "swap.h"

#define TAKE_FROM_POOL(d, pool, bytes, stream, call) do { \
	int pass_ = memory_call_enter(); \
	struct holding *h_ = pool_take(pool, d, bytes); \
	CUresult r_ = h_ ? (call) : CUDA_ERROR_OUT_OF_MEMORY; \
	r_ = pool_took(h_, r_, *ptr, stream); \
	memory_call_leave(pass_); \
	return r_; \
} while (0)

/* In a stream that is captured an allocation becomes a node of the graph. */
#define NOTE_CAPTURED(d, bytes, stream, call) do { \
	CUresult r_ = graph_note(stream, d, bytes); \
	return r_ == CUDA_SUCCESS ? (call) : r_; \
} while (0)

/* Whether allocations from this pool are ours, so that they can be moved. */
static bool movable(CUmemPool pool) { return atomic_load(&session.swap) && !pooled_exported(pool); }

/* An allocation in a stream that is captured: ours, where it can be, so that it can be moved. */
static bool take_captured(struct device *d, CUmemPool pool, CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	bool ours;

	int pass_ = memory_call_enter();
	ours = movable(pool) && graph_alloc(d, graph_of_capture(stream), stream, bytes, ptr);
	memory_call_leave(pass_);
	return ours;
}

static CUresult take_pooled(struct device *d, CUmemPool pool, CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	bool card_full;
	int alone = 0;
	CUresult r;

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	do {
		int pass_ = memory_call_enter();
		r = pooled_alloc(d, pool, ptr, bytes, stream, &card_full);
		memory_call_leave(pass_);
	} while (card_full && oversubscribe_wait(d, bytes, &alone));
	oversubscribe_satisfied(d);
	return r;
}

CUresult on_cuMemAllocAsync(fn_cuMemAllocAsync real, CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	struct device *d = device_ready();
	CUmemPool pool;

	if (!d || !ptr || !real_cuDeviceGetMemPool || real_cuDeviceGetMemPool(&pool, d->cu) != CUDA_SUCCESS)
		return real(ptr, bytes, stream);
	CUstream its = real == real_cuMemAllocAsync_ptsz ? own_stream(stream) : stream;
	if (stream_capturing(its)) {
		if (take_captured(d, pool, ptr, bytes, its))
			return CUDA_SUCCESS;
		NOTE_CAPTURED(d, bytes, its, real(ptr, bytes, stream));
	}
	if (movable(pool))
		return take_pooled(d, pool, ptr, bytes, its);
	TAKE_FROM_POOL(d, pool, bytes, stream, real(ptr, bytes, stream));
}

CUresult on_cuMemAllocFromPoolAsync(fn_cuMemAllocFromPoolAsync real, CUdeviceptr *ptr, size_t bytes, CUmemPool pool, CUstream stream)
{
	struct device *d = device_ready();

	if (!d || !ptr || !pool)
		return real(ptr, bytes, pool, stream);
	d = pool_device(pool, d); /* it may be of another device than the current one */
	CUstream its = real == real_cuMemAllocFromPoolAsync_ptsz ? own_stream(stream) : stream;
	if (stream_capturing(its)) {
		if (take_captured(d, pool, ptr, bytes, its))
			return CUDA_SUCCESS;
		NOTE_CAPTURED(d, bytes, its, real(ptr, bytes, pool, stream));
	}
	if (movable(pool))
		return take_pooled(d, pool, ptr, bytes, its);
	TAKE_FROM_POOL(d, pool, bytes, stream, real(ptr, bytes, pool, stream));
}

CUresult on_cuMemFreeAsync(fn_cuMemFreeAsync real, CUdeviceptr ptr, CUstream stream)
{
	struct holding *own;
	CUresult r = CUDA_SUCCESS;

	CUstream its = real == real_cuMemFreeAsync_ptsz ? own_stream(stream) : stream;
	int pass_ = memory_call_enter();
	if (!(stream_capturing(its) ? graph_free(ptr, graph_of_capture(its), its, &r) : graph_memory_free(ptr, &r)) && !pooled_free(ptr, its)) {
		ledger_lock();
		own = ledger_find(ptr, HOLD_OWN);
		ledger_unlock();
		if (own)
			movable_free(own);
		else
			r = real(ptr, stream);
	}
	memory_call_leave(pass_);
	return r;
}

CUresult on_cuMemPoolCreate(fn_cuMemPoolCreate real, CUmemPool *pool, const CUmemPoolProps *props)
{
	CUresult r = real(pool, props);

	if (r == CUDA_SUCCESS && props->handle_types)
		pooled_export(*pool);
	if (r == CUDA_SUCCESS && library_start() && props->location.type == CU_MEM_LOCATION_DEVICE && device_of(props->location.id))
		pool_created(*pool, device_of(props->location.id));
	return r;
}

CUresult on_cuMemPoolDestroy(fn_cuMemPoolDestroy real, CUmemPool pool)
{
	CUresult r = pool_destroy(real, pool);

	if (r == CUDA_SUCCESS)
		pooled_destroy(pool);
	return r;
}

CUresult on_cuMemPoolGetAttribute(fn_cuMemPoolGetAttribute real, CUmemPool pool, int attr, void *value)
{
	if (atomic_load(&session.swap) && pool && value && pooled_get(pool, attr, value))
		return CUDA_SUCCESS;
	return real(pool, attr, value);
}

CUresult on_cuMemPoolSetAttribute(fn_cuMemPoolSetAttribute real, CUmemPool pool, int attr, void *value)
{
	CUresult r = real(pool, attr, value);

	if (r == CUDA_SUCCESS && atomic_load(&session.swap) && attr >= CU_MEMPOOL_THRESHOLD && attr <= CU_MEMPOOL_USED_HIGH)
		pooled_set(pool, attr, *(uint64_t *)value);
	return r;
}

CUresult on_cuMemPoolTrimTo(fn_cuMemPoolTrimTo real, CUmemPool pool, size_t retain)
{
	int pass_ = memory_call_enter();
	if (pass_)
		pooled_trim(pool, retain);
	memory_call_leave(pass_);
	CUresult r = real(pool, retain);
	struct device *d = r == CUDA_SUCCESS ? device_ready() : NULL;

	if (d)
		pools_refresh(d, false);
	return r;
}

CUresult on_cuMemPoolImportFromShareableHandle(fn_cuMemPoolImportFromShareableHandle real, CUmemPool *pool, void *handle, int type, uint64_t flags)
{
	CUresult r = real(pool, handle, type, flags);
	if (r == CUDA_SUCCESS)
		swap_pin("pool-import");
	return r;
}
