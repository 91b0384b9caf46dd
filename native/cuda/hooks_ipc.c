/* Hooks of memory that processes give to one another. */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include "blocks.h"
#include "driver_symbols.h"
#include "handlers.h"
#include "ipc_imports.h"
#include "log.h"
#include "memory_budget.h"
#include "movable_memory.h"
#include "peer_service.h"
#include "pool_memory.h"
#include "shared_exports.h"
#include "sharing.h"
#include "start.h"
#include "swap.h"

static CUresult take_import(CUdeviceptr ptr, const CUipcMemHandle *handle)
{
	struct device *d = device_ready();
	return d ? ipc_import(d, ptr, handle) : CUDA_SUCCESS;
}

/*
 * The driver has no such handle of memory that may leave the card, so it is one of ours. What cannot be given so is
 * refused. The program may not look at the answer, and another wait for what never comes: so it is said where people look.
 */
static CUresult give_own(CUipcMemHandle *handle, struct block *b, uint64_t offset, uint64_t size)
{
	static _Atomic bool said;
	struct shared_name n;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (peer_service_start() && shared_export(b, offset, size, &n)) {
		memcpy(handle, &n, sizeof n);
		return CUDA_SUCCESS;
	}
	if (!atomic_exchange(&said, true))
		log_error("memory of this container can be swapped out, and cannot be given to another process here (cuIpcGetMemHandle): "
			"who waits for it waits in vain; a program that does this needs a class without swap");
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult on_cuIpcGetMemHandle(fn_cuIpcGetMemHandle real, CUipcMemHandle *handle, CUdeviceptr ptr)
{
	uint64_t offset, size;
	struct block *b = movable_block(ptr, &offset, &size);
	CUresult r;

	if (b && !pooled_owns(ptr))
		return give_own(handle, b, offset, size);
	r = b ? CUDA_ERROR_INVALID_VALUE : real(handle, ptr); /* memory of pools has no such handles */
	if (r == CUDA_SUCCESS && library_start()) {
		swap_pin("ipc-export");
		ipc_exported(handle);
	}
	return r;
}

static CUresult open_own(const struct shared_name *n, CUdeviceptr *ptr)
{
	enum shared_when when;
	CUresult r;

	if (!ptr || !device_ready())
		return CUDA_ERROR_INVALID_VALUE;
	if (n->pid == (uint32_t)getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!atomic_load(&session.swap) || !peer_service_start())
		return CUDA_ERROR_NOT_SUPPORTED;
	UNTIL_NOW(r = shared_open(n, ptr, &when));
	return r;
}

CUresult on_cuIpcOpenMemHandle(fn_cuIpcOpenMemHandle real, CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
	struct shared_name n;
	CUresult r;

	if (shared_is_name(&handle, &n))
		return open_own(&n, ptr);
	r = real(ptr, handle, flags);
	if (r != CUDA_SUCCESS)
		return r;
	swap_pin("ipc-import");
	r = take_import(*ptr, &handle);
	if (r != CUDA_SUCCESS)
		real_cuIpcCloseMemHandle(*ptr);
	return r;
}

static CUresult close_import(fn_cuIpcCloseMemHandle real, CUdeviceptr ptr)
{
	struct holding held_;
	CUresult r = CUDA_SUCCESS;

	if (!shared_close(ptr) && !HOLDING_DROP(ptr, HOLD_IPC, real(ptr), r))
		r = real(ptr);
	return r;
}

CUresult on_cuIpcCloseMemHandle(fn_cuIpcCloseMemHandle real, CUdeviceptr ptr)
{
	CUresult r;

	int pass_ = memory_call_enter();
	r = close_import(real, ptr);
	memory_call_leave(pass_);
	shared_imports_settle();
	return r;
}

CUresult on_cuMemPoolImportPointer(fn_cuMemPoolImportPointer real, CUdeviceptr *ptr, CUmemPool pool, CUmemPoolPtrExportData *data)
{
	CUresult r = real(ptr, pool, data);

	if (r != CUDA_SUCCESS)
		return r;
	swap_pin("pool-import");
	r = take_import(*ptr, NULL);
	if (r != CUDA_SUCCESS)
		real_cuMemFree_v2(*ptr);
	return r;
}
