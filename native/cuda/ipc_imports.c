/* Memory of other processes that this one has opened. */
#include "ipc_imports.h"
#include "driver_symbols.h"
#include "ledger.h"
#include "memory_budget.h"
#include "system.h"

static uint64_t handle_key(const CUipcMemHandle *h)
{
	return hash_bytes(h->reserved, sizeof h->reserved);
}

void ipc_exported(const CUipcMemHandle *handle)
{
	container_export(session.container, handle_key(handle), atomic_load(&session.process));
}

/* A row where it waits until it is to be charged here; -1: nobody else pays for it. */
static int paid_elsewhere(const struct device *d, uint64_t size, const CUipcMemHandle *handle)
{
	uint64_t exporter = handle ? container_exporter(session.container, handle_key(handle)) : 0;

	return exporter ? container_import(session.container, atomic_load(&session.process), exporter, d->index, size) : -1;
}

CUresult ipc_import(struct device *d, CUdeviceptr ptr, const CUipcMemHandle *handle)
{
	CUdeviceptr base;
	size_t size = 0;
	int row;

	if (!d || !real_cuMemGetAddressRange_v2 || real_cuMemGetAddressRange_v2(&base, &size, ptr) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	size = charged_size(size);
	row = paid_elsewhere(d, size, handle);
	if (row < 0 && !memory_charge(d, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ledger_lock();
	struct holding *h = ledger_add(ptr, HOLD_IPC, d, row < 0 ? size : 0);
	if (h && row >= 0) {
		h->link = (uint64_t)row + 1;
		h->own = (void *)(uintptr_t)size;
	}
	ledger_unlock();
	return CUDA_SUCCESS;
}

static void charge_orphan(struct holding *h, void *arg)
{
	(void)arg;
	if (h->kind != HOLD_IPC || !h->link || !container_import_left(session.container, (int)h->link - 1))
		return;
	/* The exporter died and this process holds the memory: it counts in its own row now, whether it fits or not. */
	h->bytes = (uint64_t)(uintptr_t)h->own;
	container_charge(session.container, atomic_load(&session.process), h->device->index, h->bytes, UINT64_MAX);
	holding_import_end(h);
}

void ipc_imports_refresh(void)
{
	ledger_lock();
	ledger_each(charge_orphan, NULL);
	ledger_unlock();
}
