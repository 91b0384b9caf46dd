/* Hooks of stream-ordered pools. */
#include "handlers.h"
#include "memory_calls.h"
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

CUresult on_cuMemAllocAsync(fn_cuMemAllocAsync real, CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	struct device *d = device_ready();
	CUmemPool pool;

	if (!d || !ptr || !real_cuDeviceGetMemPool || real_cuDeviceGetMemPool(&pool, d->cu) != CUDA_SUCCESS)
		return real(ptr, bytes, stream);
	if (stream_capturing(stream))
		NOTE_CAPTURED(d, bytes, stream, real(ptr, bytes, stream));
	TAKE_FROM_POOL(d, pool, bytes, stream, real(ptr, bytes, stream));
}

CUresult on_cuMemAllocFromPoolAsync(fn_cuMemAllocFromPoolAsync real, CUdeviceptr *ptr, size_t bytes, CUmemPool pool, CUstream stream)
{
	struct device *d = device_ready();

	if (!d || !ptr || !pool)
		return real(ptr, bytes, pool, stream);
	d = pool_device(pool, d); /* it may be of another device than the current one */
	if (stream_capturing(stream))
		NOTE_CAPTURED(d, bytes, stream, real(ptr, bytes, pool, stream));
	TAKE_FROM_POOL(d, pool, bytes, stream, real(ptr, bytes, pool, stream));
}

CUresult on_cuMemFreeAsync(fn_cuMemFreeAsync real, CUdeviceptr ptr, CUstream stream)
{
	MEMORY_CALL(real(ptr, stream));
}

CUresult on_cuMemPoolCreate(fn_cuMemPoolCreate real, CUmemPool *pool, const CUmemPoolProps *props)
{
	CUresult r = real(pool, props);

	if (r == CUDA_SUCCESS && library_start() && props->location.type == CU_MEM_LOCATION_DEVICE && device_of(props->location.id))
		pool_created(*pool, device_of(props->location.id));
	return r;
}

CUresult on_cuMemPoolDestroy(fn_cuMemPoolDestroy real, CUmemPool pool)
{
	return pool_destroy(real, pool);
}

CUresult on_cuMemPoolTrimTo(fn_cuMemPoolTrimTo real, CUmemPool pool, size_t retain)
{
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
