/* Hooks of memory that processes give to one another. */
#include <stdatomic.h>
#include <stdbool.h>
#include "driver_symbols.h"
#include "handlers.h"
#include "ipc_imports.h"
#include "log.h"
#include "memory_budget.h"
#include "movable_memory.h"
#include "start.h"
#include "swap.h"

static CUresult take_import(CUdeviceptr ptr, const CUipcMemHandle *handle)
{
	struct device *d = device_ready();
	return d ? ipc_import(d, ptr, handle) : CUDA_SUCCESS;
}

/*
 * Memory that may leave the card has no handle that others could hold on to. The program may not look at the answer, and
 * another wait for what never comes: so it is said where people look.
 */
static CUresult refuse_export(void)
{
	static _Atomic bool said;

	if (!atomic_exchange(&said, true))
		log_error("memory of this container can be swapped out, and cannot be given to another process (cuIpcGetMemHandle): "
			"who waits for it waits in vain; a program that does this needs a class without swap");
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult on_cuIpcGetMemHandle(fn_cuIpcGetMemHandle real, CUipcMemHandle *handle, CUdeviceptr ptr)
{
	CUresult r;

	if (movable_owns(ptr, NULL, NULL))
		return refuse_export();
	r = real(handle, ptr);
	if (r == CUDA_SUCCESS && library_start()) {
		swap_pin("ipc-export");
		ipc_exported(handle);
	}
	return r;
}

CUresult on_cuIpcOpenMemHandle(fn_cuIpcOpenMemHandle real, CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
	CUresult r = real(ptr, handle, flags);

	if (r != CUDA_SUCCESS)
		return r;
	swap_pin("ipc-import");
	r = take_import(*ptr, &handle);
	if (r != CUDA_SUCCESS)
		real_cuIpcCloseMemHandle(*ptr);
	return r;
}

CUresult on_cuIpcCloseMemHandle(fn_cuIpcCloseMemHandle real, CUdeviceptr ptr)
{
	struct holding held_;
	CUresult r;

	if (!HOLDING_DROP(ptr, HOLD_IPC, real(ptr), r))
		r = real(ptr);
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
