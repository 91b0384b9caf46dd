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

CUresult ipc_import(struct device *d, CUdeviceptr ptr, const CUipcMemHandle *handle)
{
	uint64_t key = handle ? handle_key(handle) : 0;
	CUdeviceptr base;
	size_t size = 0;
	bool paid;

	if (!d || !real_cuMemGetAddressRange_v2 || real_cuMemGetAddressRange_v2(&base, &size, ptr) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	paid = key && container_exported(session.container, key);
	if (!paid && !memory_charge(d, charged_size(size)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ledger_lock();
	struct holding *h = ledger_add(ptr, HOLD_IPC, d, paid ? 0 : charged_size(size));
	if (h && paid) {
		h->link = key;
		h->own = (void *)(uintptr_t)charged_size(size);
	}
	ledger_unlock();
	return CUDA_SUCCESS;
}

static void charge_orphan(struct holding *h, void *arg)
{
	(void)arg;
	if (h->kind != HOLD_IPC || !h->link || container_exported(session.container, h->link))
		return;
	/* The exporter died and this process holds the memory: it counts here now, whether it fits or not. */
	h->bytes = (uint64_t)(uintptr_t)h->own;
	h->link = 0;
	h->own = NULL;
	container_charge(session.container, atomic_load(&session.process), h->device->index, h->bytes, UINT64_MAX);
}

void ipc_imports_refresh(void)
{
	ledger_lock();
	ledger_each(charge_orphan, NULL);
	ledger_unlock();
}
