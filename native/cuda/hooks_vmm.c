/*
 * Hooks of virtual memory management by the program itself: memory lives while a handle or a mapping of it does. In a
 * container that can be swapped it is movable (program_memory.c); what was made before, or imported, is only counted.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "blocks.h"
#include "driver_symbols.h"
#include "handlers.h"
#include "ledger.h"
#include "memory_budget.h"
#include "memory_calls.h"
#include "movable_memory.h"
#include "oversubscribe.h"
#include "peer_service.h"
#include "program_memory.h"
#include "shared_exports.h"
#include "sharing.h"
#include "start.h"
#include "swap.h"

#define NAME_SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Nobody says when the last descriptor of it is closed: what was given as one is charged until this process ends. */
static void settle(struct holding *v)
{
	if (v->refs > 0 || v->maps > 0)
		return;
	if (!v->given) {
		holding_give_back(v);
		return;
	}
	atomic_fetch_add(&v->device->unseen, v->bytes);
	ledger_drop(v);
}

static void note_given(CUmemHandle handle)
{
	struct holding *v;

	ledger_lock();
	v = ledger_find(handle, HOLD_VMM);
	if (v)
		v->given = true;
	ledger_unlock();
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
		shared_imports_settle();
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
	if (movable_owns(at, NULL, NULL) || shared_range(at, NULL, NULL))
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

/*
 * A descriptor of memory that can move is one of ours: the driver's would hold on to the memory for as long as it is open.
 * It is good in this container alone; the driver knows nothing of it.
 */
static CUresult export_own(int *descriptor, const struct shared_name *n)
{
	int fd;

	if (!descriptor)
		return CUDA_ERROR_INVALID_VALUE;
	if (!peer_service_start())
		return CUDA_ERROR_NOT_SUPPORTED;
	fd = (int)syscall(SYS_memfd_create, "elastic-gpu-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (write(fd, n, sizeof *n) != (ssize_t)sizeof *n || fcntl(fd, F_ADD_SEALS, NAME_SEALS)) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*descriptor = fd;
	return CUDA_SUCCESS;
}

static bool read_name(int fd, struct shared_name *n)
{
	struct shared_name bytes;
	int seals = fcntl(fd, F_GET_SEALS); /* first: other files may do things when they are read */

	return seals >= 0 && (seals & NAME_SEALS) == NAME_SEALS && pread(fd, &bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes && shared_is_name(&bytes, n);
}

/* The name of a handle of the program's; false if it is not one of memory that can be given to others. */
static bool name_of(CUmemHandle handle, struct shared_name *n)
{
	struct block *b;

	blocks_lock();
	b = program_block(handle);
	blocks_unlock();
	return b && shared_export(b, 0, b->size, n);
}

CUresult on_cuMemExportToShareableHandle(fn_cuMemExportToShareableHandle real, void *os_handle, CUmemHandle handle, int type, unsigned long long flags)
{
	struct shared_name n;

	if (type == CU_MEM_HANDLE_POSIX_FD && !flags && name_of(handle, &n))
		return export_own(os_handle, &n);
	int pass_ = memory_call_enter();
	CUmemHandle own = handle;
	program_handle(handle, &handle);
	CUresult r = shared(real(os_handle, handle, type, flags), "vmm-export");
	if (r == CUDA_SUCCESS && !program_given(own))
		note_given(handle);
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

static CUresult import_own(CUmemHandle *handle, const struct shared_name *n)
{
	struct block *b;
	enum shared_when when;
	bool own = n->pid == (uint32_t)getpid();
	CUresult r;

	if (!handle || !n->program || !library_start())
		return CUDA_ERROR_INVALID_VALUE;
	if (!atomic_load(&session.swap) || !peer_service_start())
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!own) {
		UNTIL_NOW(r = shared_import(n, program_adopt, handle, &when));
		return r;
	}
	blocks_lock();
	b = shared_own(n);
	r = b && b->program && program_adopt(b, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	blocks_unlock();
	return r;
}

/* The size of an imported handle shows only when it is mapped: it is charged then. */
CUresult on_cuMemImportFromShareableHandle(fn_cuMemImportFromShareableHandle real, CUmemHandle *handle, void *os_handle, int type)
{
	CUmemProp prop = {0};
	struct shared_name n;
	struct device *d;
	struct holding *v;
	CUresult r;

	if (type == CU_MEM_HANDLE_POSIX_FD && read_name((int)(intptr_t)os_handle, &n))
		return import_own(handle, &n);
	r = real(handle, os_handle, type);
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
	shared_imports_settle();
	return r;
}
