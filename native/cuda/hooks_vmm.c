/* Hooks of virtual memory management by the program itself: memory lives while a handle or a mapping of it does. */
#include "driver_symbols.h"
#include "handlers.h"
#include "ledger.h"
#include "memory_budget.h"
#include "memory_calls.h"
#include "movable_memory.h"
#include "start.h"

static void settle(struct holding *v)
{
	if (v->refs <= 0 && v->maps <= 0)
		holding_give_back(v);
}

CUresult on_cuMemCreate(fn_cuMemCreate real, CUmemHandle *handle, size_t size, const CUmemProp *prop, unsigned long long flags)
{
	struct device *d = prop && prop->location.type == CU_MEM_LOCATION_DEVICE && library_start() ? device_of(prop->location.id) : NULL;
	CUresult r;

	if (!d)
		return real(handle, size, prop, flags);
	int pass_ = memory_call_enter();
	if (memory_charge(d, size)) {
		r = real(handle, size, prop, flags);
		if (r == CUDA_SUCCESS) {
			ledger_lock();
			ledger_add(*handle, HOLD_VMM, d, size);
			ledger_unlock();
		} else {
			memory_refund(d, size);
		}
	} else {
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory_call_leave(pass_);
	return r;
}

CUresult on_cuMemRelease(fn_cuMemRelease real, CUmemHandle handle)
{
	struct holding *v;
	CUresult r;

	ledger_lock(); /* around the call: the handle's number may be given out again at once */
	r = real(handle);
	v = r == CUDA_SUCCESS ? ledger_find(handle, HOLD_VMM) : NULL;
	if (v) {
		v->refs--;
		settle(v);
	}
	ledger_unlock();
	return r;
}

CUresult on_cuMemRetainAllocationHandle(fn_cuMemRetainAllocationHandle real, CUmemHandle *handle, void *addr)
{
	CUresult r;
	struct holding *v;

	if (movable_owns((CUdeviceptr)(uintptr_t)addr, NULL, NULL))
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

CUresult on_cuMemMap(fn_cuMemMap real, CUdeviceptr ptr, size_t size, size_t offset, CUmemHandle handle, unsigned long long flags)
{
	struct holding *v, *m;
	uint64_t extra = 0;
	struct device *d = NULL;
	CUresult r;

	ledger_lock();
	v = ledger_find(handle, HOLD_VMM);
	if (v && v->link && offset + size > v->bytes) {
		d = v->device;
		extra = offset + size - v->bytes;
	}
	ledger_unlock();
	if (extra && !memory_charge(d, extra))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = real(ptr, size, offset, handle, flags);
	if (r != CUDA_SUCCESS) {
		if (extra)
			memory_refund(d, extra);
		return r;
	}
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
	return r;
}

CUresult on_cuMemUnmap(fn_cuMemUnmap real, CUdeviceptr ptr, size_t size)
{
	struct holding *m, *v;
	CUresult r;

	ledger_lock();
	r = real(ptr, size);
	for (CUdeviceptr at = ptr; r == CUDA_SUCCESS && at < ptr + size;) {
		m = ledger_find(at, HOLD_MAP);
		if (!m) {
			at += 64 * 1024; /* host memory is not counted; no mapping starts off this grid */
			continue;
		}
		at += (uintptr_t)m->own;
		v = ledger_find(m->link, HOLD_VMM);
		ledger_drop(m);
		if (v) {
			v->maps--;
			settle(v);
		}
	}
	ledger_unlock();
	return r;
}
