/* Device memory against the container's limit: charged before the driver is asked, refunded when it is free again. */
#include "memory_budget.h"

static _Atomic(void (*)(struct device *)) reclaim;

void memory_on_full(void (*fn)(struct device *)) { atomic_store(&reclaim, fn); }

bool memory_charge(struct device *d, uint64_t bytes)
{
	int process = atomic_load(&session.process);
	void (*free_unused)(struct device *);

	session_reload(false);
	atomic_fetch_add(&d->changes, 1);
	if (container_charge(session.container, process, d->index, bytes, atomic_load(&d->limit)))
		return true;
	free_unused = atomic_load(&reclaim);
	if (free_unused)
		free_unused(d);
	return container_charge(session.container, process, d->index, bytes, atomic_load(&d->limit));
}

void memory_refund(struct device *d, uint64_t bytes)
{
	atomic_fetch_add(&d->changes, 1);
	container_refund(session.container, atomic_load(&session.process), d->index, bytes);
}

uint64_t charged_size(uint64_t bytes)
{
	if (bytes > (uint64_t)1 << 60)
		return bytes; /* no rounding past the end of numbers: no limit is that large */
	return bytes > MiB ? ROUND_UP(bytes, 2 * MiB) : ROUND_UP(bytes, 512);
}

void holding_note(uint64_t key, enum holding_kind kind, struct device *d, uint64_t bytes)
{
	if (kind == HOLD_MANAGED)
		atomic_fetch_add(&d->managed, 1);
	ledger_lock();
	ledger_add(key, kind, d, bytes);
	ledger_unlock();
}

void holding_import_end(struct holding *h)
{
	if (h->kind != HOLD_IPC || !h->link)
		return;
	container_import_end(session.container, (int)h->link - 1, h->device->index, (uint64_t)(uintptr_t)h->own);
	h->link = 0;
	h->own = NULL;
}

void holding_give_back(struct holding *h)
{
	holding_import_end(h);
	memory_refund(h->device, h->bytes);
	ledger_drop(h);
}

bool holding_drop_begin(uint64_t key, enum holding_kind kind, struct holding *held)
{
	struct holding *h;

	ledger_lock();
	h = ledger_find(key, kind);
	if (h) {
		*held = *h;
		ledger_drop(h);
	}
	ledger_unlock();
	return h != NULL;
}

void holding_drop_end(struct holding *held, CUresult r)
{
	if (r == CUDA_SUCCESS) {
		if (held->kind == HOLD_MANAGED)
			atomic_fetch_sub(&held->device->managed, 1);
		memory_refund(held->device, held->bytes);
		holding_import_end(held);
		return;
	}
	ledger_lock();
	struct holding *h = ledger_add(held->key, held->kind, held->device, held->bytes);
	if (h) {
		h->link = held->link;
		h->own = held->own;
	}
	ledger_unlock();
}
