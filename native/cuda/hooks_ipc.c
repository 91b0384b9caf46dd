/* Hooks of memory that processes give to one another. */
#include "driver_symbols.h"
#include "handlers.h"
#include "ipc_imports.h"
#include "memory_budget.h"
#include "movable_memory.h"
#include "start.h"
#include "swap.h"

static CUresult take_import(CUdeviceptr ptr, const CUipcMemHandle *handle)
{
	struct device *d = device_ready();
	return d ? ipc_import(d, ptr, handle) : CUDA_SUCCESS;
}

CUresult on_cuIpcGetMemHandle(fn_cuIpcGetMemHandle real, CUipcMemHandle *handle, CUdeviceptr ptr)
{
	CUresult r;

	if (movable_owns(ptr, NULL, NULL))
		return CUDA_ERROR_NOT_SUPPORTED; /* memory that may leave the card has no handle that others could hold on to */
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
