/* Hooks of plain allocations and external memory, and of what a program asks about its memory. */
#include "driver_symbols.h"
#include "graph_memory.h"
#include "handlers.h"
#include "memory_budget.h"
#include "memory_calls.h"
#include "movable_memory.h"
#include "oversubscribe.h"
#include "pool_memory.h"
#include "pools.h"
#include "shared_imports.h"
#include "start.h"
#include "swap.h"
#include "take.h"

static CUresult take_movable(CUdeviceptr *ptr, uint64_t bytes)
{
	struct device *d = device_ready();
	bool card_full;
	int alone = 0;
	CUresult r;

	/* On an oversubscribed card a neighbour moves out; meanwhile we may be moved ourselves. */
	do {
		int pass_ = memory_call_enter();
		r = movable_alloc(d, ptr, bytes, &card_full);
		memory_call_leave(pass_);
	} while (card_full && oversubscribe_wait(d, bytes, &alone));
	oversubscribe_satisfied(d);
	return r;
}

CUresult on_cuMemAlloc(fn_cuMemAlloc_v2 real, CUdeviceptr *ptr, size_t bytes)
{
	if (device_ready() && atomic_load(&session.swap) && ptr && bytes)
		return take_movable(ptr, bytes);
	TAKE(*ptr, HOLD_PTR, charged_size(bytes), real(ptr, bytes));
}

CUresult on_cuMemAllocPitch(fn_cuMemAllocPitch_v2 real, CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
	/* The driver chooses the pitch; on every card so far it is a multiple of 512. */
	uint64_t bytes;
	if (width > SIZE_MAX - 512 || __builtin_mul_overflow((uint64_t)ROUND_UP(width, 512), (uint64_t)height, &bytes))
		bytes = UINT64_MAX;
	if (device_ready() && atomic_load(&session.swap) && ptr && pitch && width && height) {
		*pitch = ROUND_UP(width, 512);
		return take_movable(ptr, bytes);
	}
	TAKE(*ptr, HOLD_PTR, charged_size(bytes), real(ptr, pitch, width, height, element));
}

CUresult on_cuMemAllocManaged(fn_cuMemAllocManaged real, CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
	TAKE(*ptr, HOLD_MANAGED, charged_size(bytes), real(ptr, bytes, flags));
}

CUresult on_cuMemFree(fn_cuMemFree_v2 real, CUdeviceptr ptr)
{
	struct holding *own, held_;
	CUresult r = CUDA_SUCCESS;

	int pass_ = memory_call_enter();
	if (graph_memory_free(ptr, &r)) {
		memory_call_leave(pass_);
		return r;
	}
	ledger_lock();
	own = ledger_find(ptr, HOLD_OWN);
	ledger_unlock();
	if (own) {
		pooled_disown(ptr);
		movable_free(own);
		memory_call_leave(pass_);
		return CUDA_SUCCESS;
	}
	if (!HOLDING_DROP(ptr, HOLD_PTR, real(ptr), r) && !HOLDING_DROP(ptr, HOLD_MANAGED, real(ptr), r) && !HOLDING_DROP(ptr, HOLD_IPC, real(ptr), r)) {
		struct device *d = ptr ? device_ready() : NULL;
		r = real(ptr);
		if (d && r == CUDA_SUCCESS)
			pools_refresh(d, false); /* memory of a pool may be freed this way too */
	}
	memory_call_leave(pass_);
	return r;
}

CUresult on_cuMemGetAddressRange(fn_cuMemGetAddressRange_v2 real, CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
	if (movable_owns(ptr, base, size) || shared_range(ptr, base, size))
		return CUDA_SUCCESS;
	MEMORY_CALL(real(base, size, ptr));
}

CUresult on_cuImportExternalMemory(fn_cuImportExternalMemory real, CUexternalMemory *mem, const CUexternalMemoryDesc *desc)
{
	if (!desc)
		return real(mem, desc);
	swap_pin("external-memory");
	TAKE(*mem, HOLD_EXTERNAL, charged_size(desc->size), real(mem, desc));
}

CUresult on_cuDestroyExternalMemory(fn_cuDestroyExternalMemory real, CUexternalMemory mem)
{
	struct holding held_;
	CUresult r;

	if (!HOLDING_DROP((uint64_t)(uintptr_t)mem, HOLD_EXTERNAL, real(mem), r))
		r = real(mem);
	return r;
}

/* What the container sees of its card: its limit, and what is left of it. */
static void shown(struct device *d, size_t real_free, size_t *free, size_t *total)
{
	uint64_t limit, used;

	session_reload(false);
	limit = atomic_load(&d->limit);
	used = container_used(session.container, d->index);
	*total = limit;
	*free = used < limit ? limit - used : 0;
	if (!atomic_load(&session.oversubscribe) && *free > real_free)
		*free = real_free;
}

CUresult on_cuMemGetInfo(fn_cuMemGetInfo_v2 real, size_t *free, size_t *total)
{
	size_t real_free, real_total;
	CUresult r = real(&real_free, &real_total);
	struct device *d = r == CUDA_SUCCESS ? device_ready() : NULL;

	if (!d || !free || !total)
		return r;
	shown(d, real_free, free, total);
	if (*total > real_total && !atomic_load(&session.oversubscribe))
		*total = real_total;
	return r;
}

CUresult on_cuDeviceTotalMem(fn_cuDeviceTotalMem_v2 real, size_t *bytes, CUdevice dev)
{
	CUresult r = real(bytes, dev);
	struct device *d = r == CUDA_SUCCESS && library_start() ? device_of(dev) : NULL;

	if (d && (atomic_load(&session.oversubscribe) || atomic_load(&d->limit) < *bytes))
		*bytes = atomic_load(&d->limit);
	return r;
}

static unsigned in_32_bits(size_t n) { return n > UINT32_MAX ? UINT32_MAX : (unsigned)n; }

CUresult on_cuMemGetInfo_v1(fn_cuMemGetInfo real, unsigned *free, unsigned *total)
{
	size_t f = 0, t = 0;
	CUresult r = real_cuMemGetInfo_v2 ? on_cuMemGetInfo(real_cuMemGetInfo_v2, &f, &t) : CUDA_ERROR_NOT_FOUND;
	(void)real;
	*free = in_32_bits(f);
	*total = in_32_bits(t);
	return r;
}

CUresult on_cuDeviceTotalMem_v1(fn_cuDeviceTotalMem real, unsigned *bytes, CUdevice dev)
{
	size_t b = 0;
	CUresult r = real_cuDeviceTotalMem_v2 ? on_cuDeviceTotalMem(real_cuDeviceTotalMem_v2, &b, dev) : CUDA_ERROR_NOT_FOUND;
	(void)real;
	*bytes = in_32_bits(b);
	return r;
}
