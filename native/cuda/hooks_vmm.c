/*
 * Hooks of virtual memory management by the program itself: memory lives while a handle or a mapping of it does. In a
 * container that can be swapped it is movable (program_memory.c); what was made before, or imported, is only counted.
 */
#include "blocks.h"
#include "driver_symbols.h"
#include "handlers.h"
#include "ledger.h"
#include "memory_budget.h"
#include "memory_calls.h"
#include "movable_memory.h"
#include "oversubscribe.h"
#include "program_memory.h"
#include "start.h"
#include "swap.h"

static void settle(struct holding *v)
{
	if (v->refs <= 0 && v->maps <= 0)
		holding_give_back(v);
}

static CUresult create_counted(fn_cuMemCreate real, struct device *d, CUmemHandle *handle, size_t size, const CUmemProp *prop, unsigned long long flags)
{
	CUresult r;

	if (!memory_charge(d, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = real(handle, size, prop, flags);
	if (r != CUDA_SUCCESS) {
		memory_refund(d, size);
		return r;
	}
	ledger_lock();
	ledger_add(*handle, HOLD_VMM, d, size);
	ledger_unlock();
	return r;
}

static CUresult create_movable(struct device *d, CUmemHandle *handle, size_t size, const CUmemProp *prop)
{
	bool card_full;
	int alone = 0;
	CUresult r;

	do {
		int pass_ = memory_call_enter();
		r = program_create(d, handle, size, prop, &card_full);
		memory_call_leave(pass_);
	} while (card_full && oversubscribe_wait(d, size, &alone));
	oversubscribe_satisfied(d);
	return r;
}

CUresult on_cuMemCreate(fn_cuMemCreate real, CUmemHandle *handle, size_t size, const CUmemProp *prop, unsigned long long flags)
{
	struct device *d = prop && prop->location.type == CU_MEM_LOCATION_DEVICE && library_start() ? device_of(prop->location.id) : NULL;

	if (!d || !handle)
		return real(handle, size, prop, flags);
	if (atomic_load(&session.swap) && !flags)
		return create_movable(d, handle, size, prop);
	return create_counted(real, d, handle, size, prop, flags);
}

CUresult on_cuMemRelease(fn_cuMemRelease real, CUmemHandle handle)
{
	struct holding *v;
	CUresult r;

	int pass_ = memory_call_enter();
	if (program_release(handle)) {
		memory_call_leave(pass_);
		return CUDA_SUCCESS;
	}
	ledger_lock(); /* around the call: the handle's number may be given out again at once */
	r = real(handle);
	v = r == CUDA_SUCCESS ? ledger_find(handle, HOLD_VMM) : NULL;
	if (v) {
		v->refs--;
		settle(v);
	}
	ledger_unlock();
	memory_call_leave(pass_);
	return r;
}

static CUresult retain(fn_cuMemRetainAllocationHandle real, CUmemHandle *handle, void *addr)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)addr;
	struct holding *v;
	CUresult r;

	if (handle && program_retain(at, handle))
		return CUDA_SUCCESS;
	if (movable_owns(at, NULL, NULL))
		return CUDA_ERROR_NOT_SUPPORTED;
	r = real(handle, addr);
	if (r != CUDA_SUCCESS)
		return r;
	ledger_lock();
	v = ledger_find(*handle, HOLD_VMM);
	if (v)
		v->refs++;
	ledger_unlock();
	return r;
}

CUresult on_cuMemRetainAllocationHandle(fn_cuMemRetainAllocationHandle real, CUmemHandle *handle, void *addr)
{
	MEMORY_CALL(retain(real, handle, addr));
}

/* Who has a copy of a handle elsewhere would go on using what is no longer there. */
static CUresult shared(CUresult r, const char *how)
{
	if (r == CUDA_SUCCESS)
		swap_pin(how);
	return r;
}

CUresult on_cuMemExportToShareableHandle(fn_cuMemExportToShareableHandle real, void *os_handle, CUmemHandle handle, int type, unsigned long long flags)
{
	int pass_ = memory_call_enter();
	program_handle(handle, &handle);
	CUresult r = shared(real(os_handle, handle, type, flags), "vmm-export");
	memory_call_leave(pass_);
	return r;
}

CUresult on_cuMulticastBindMem(fn_cuMulticastBindMem real, CUmemHandle multicast, size_t at, CUmemHandle handle, size_t offset, size_t size, unsigned long long flags)
{
	int pass_ = memory_call_enter();
	program_handle(handle, &handle);
	CUresult r = shared(real(multicast, at, handle, offset, size, flags), "multicast");
	memory_call_leave(pass_);
	return r;
}

CUresult on_cuMemGetAllocationPropertiesFromHandle(fn_cuMemGetAllocationPropertiesFromHandle real, CUmemProp *prop, CUmemHandle handle)
{
	int pass_ = memory_call_enter();
	program_handle(handle, &handle);
	CUresult r = real(prop, handle);
	memory_call_leave(pass_);
	return r;
}

/* Sparse arrays: their list has handles in it, which would have to be written over again after each move. */
CUresult on_cuMemMapArrayAsync(fn_cuMemMapArrayAsync real, CUarrayMap *list, unsigned count, CUstream stream)
{
	return atomic_load(&session.swap) ? CUDA_ERROR_NOT_SUPPORTED : real(list, count, stream);
}

/* The size of an imported handle shows only when it is mapped: it is charged then. */
CUresult on_cuMemImportFromShareableHandle(fn_cuMemImportFromShareableHandle real, CUmemHandle *handle, void *os_handle, int type)
{
	CUmemProp prop = {0};
	CUresult r = real(handle, os_handle, type);
	struct device *d;
	struct holding *v;

	if (r != CUDA_SUCCESS || !library_start() || !real_cuMemGetAllocationPropertiesFromHandle ||
	    real_cuMemGetAllocationPropertiesFromHandle(&prop, *handle) != CUDA_SUCCESS ||
	    prop.location.type != CU_MEM_LOCATION_DEVICE)
		return r;
	d = device_of(prop.location.id);
	if (!d)
		return r;
	ledger_lock();
	v = ledger_find(*handle, HOLD_VMM);
	if (v)
		v->refs++;
	else if ((v = ledger_add(*handle, HOLD_VMM, d, 0)))
		v->link = 1;
	ledger_unlock();
	return r;
}

/* What a mapping of an imported handle shows beyond what is charged for it; NULL if nothing. */
static struct device *shows_more(CUmemHandle handle, uint64_t end, uint64_t *extra)
{
	struct device *d = NULL;
	struct holding *v;

	ledger_lock();
	v = ledger_find(handle, HOLD_VMM);
	if (v && v->link && end > v->bytes) {
		d = v->device;
		*extra = end - v->bytes;
	}
	ledger_unlock();
	return d;
}

static void map_counted(CUdeviceptr ptr, size_t size, CUmemHandle handle, uint64_t extra)
{
	struct holding *v, *m;

	ledger_lock();
	v = ledger_find(handle, HOLD_VMM);
	if (v) {
		v->bytes += extra;
		v->maps++;
		m = ledger_add(ptr, HOLD_MAP, v->device, 0);
		if (m) {
			m->link = handle;
			m->own = (void *)(uintptr_t)size;
		}
	}
	ledger_unlock();
}

CUresult on_cuMemMap(fn_cuMemMap real, CUdeviceptr ptr, size_t size, size_t offset, CUmemHandle handle, unsigned long long flags)
{
	uint64_t extra = 0;
	struct device *d;
	CUresult r;

	int pass_ = memory_call_enter();
	d = shows_more(handle, offset + size, &extra);
	if (d && !memory_charge(d, extra)) {
		memory_call_leave(pass_);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	blocks_lock(); /* around the call: the address may be mapped again as soon as it is free */
	if (!program_map(handle, ptr, size, offset, flags, &r)) {
		r = real(ptr, size, offset, handle, flags);
		if (r == CUDA_SUCCESS)
			map_counted(ptr, size, handle, extra);
	}
	blocks_unlock();
	if (d && r != CUDA_SUCCESS)
		memory_refund(d, extra);
	memory_call_leave(pass_);
	return r;
}

/* One mapping that the driver has undone; false if none begins there that we know of. */
static bool unmapped(CUdeviceptr at, uint64_t *size)
{
	struct holding *m, *v;

	if (program_unmapped(at, size))
		return true;
	ledger_lock();
	m = ledger_find(at, HOLD_MAP);
	if (m) {
		*size = (uintptr_t)m->own;
		v = ledger_find(m->link, HOLD_VMM);
		ledger_drop(m);
		if (v) {
			v->maps--;
			settle(v);
		}
	}
	ledger_unlock();
	return m != NULL;
}

CUresult on_cuMemUnmap(fn_cuMemUnmap real, CUdeviceptr ptr, size_t size)
{
	CUresult r;

	int pass_ = memory_call_enter();
	blocks_lock();
	r = real(ptr, size);
	for (CUdeviceptr at = ptr; r == CUDA_SUCCESS && at < ptr + size;) {
		uint64_t n = 64 * 1024; /* host memory is not counted; no mapping starts off this grid */
		unmapped(at, &n);
		at += n;
	}
	blocks_unlock();
	memory_call_leave(pass_);
	return r;
}
