/*
 * Virtual memory that the program manages itself. It lives while the program holds its handle or has it mapped, as the
 * driver has it; the driver's own handle is ours all that time, and another one after each move.
 */
#include <stdlib.h>
#include "blocks.h"
#include "driver_symbols.h"
#include "ledger.h"
#include "memory_budget.h"
#include "program_memory.h"
#include "shared_imports.h"

/* Handles are looked up by number, never followed: a program may pass any. */
static struct block *find(CUmemHandle handle)
{
	struct holding *h;
	struct block *b;

	ledger_lock();
	h = ledger_find(handle, HOLD_PROGRAM);
	b = h ? h->own : NULL;
	ledger_unlock();
	return b;
}

static void forget(uint64_t key, enum holding_kind kind)
{
	struct holding *h;

	ledger_lock();
	h = ledger_find(key, kind);
	if (h)
		ledger_drop(h);
	ledger_unlock();
}

static bool note(uint64_t key, enum holding_kind kind, struct block *b)
{
	struct holding *h;

	ledger_lock();
	h = ledger_add(key, kind, b->device, 0);
	if (h)
		h->own = b;
	ledger_unlock();
	return h != NULL;
}

static void free_block(struct block *b)
{
	if (b->given)
		atomic_fetch_add(&b->device->unseen, b->size);
	else
		memory_refund(b->device, b->size);
	free(b->chunk);
	free(b);
}

static void settle(struct block *b)
{
	if (b->refs > 0 || b->maps || b->importers)
		return;
	forget((uint64_t)(uintptr_t)b, HOLD_PROGRAM);
	block_unlink(b);
	chunk_free(b, b->chunk, 0);
	if (b->import)
		shared_import_gone(b);
	else
		free_block(b);
}

void program_settle(void)
{
	blocks_lock();
	for (struct block *b = blocks, *next; b; b = next) {
		next = b->next;
		if (b->program)
			settle(b);
	}
	blocks_unlock();
}

bool program_adopt(struct block *b, CUmemHandle *handle)
{
	if (!b->refs && !note((uint64_t)(uintptr_t)b, HOLD_PROGRAM, b))
		return false;
	b->refs++;
	*handle = (CUmemHandle)(uintptr_t)b;
	return true;
}

struct block *program_block(CUmemHandle handle) { return find(handle); }

CUresult program_create(struct device *d, CUmemHandle *handle, size_t size, const CUmemProp *prop, bool *card_full)
{
	struct block *b;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	*card_full = false;
	if (!memory_charge(d, size))
		return r;
	b = calloc(1, sizeof *b);
	if (b)
		b->chunk = calloc(1, sizeof *b->chunk);
	if (!b || !b->chunk) {
		free(b);
		memory_refund(d, size);
		return r;
	}
	b->device = d;
	b->prop = *prop;
	b->size = b->chunk->size = size;
	b->chunks = 1;
	b->program = true;
	b->refs = 1;
	real_cuCtxGetCurrent(&b->ctx);
	if (!chunk_make(b, b->chunk, 0, &r)) {
		*card_full = r == CUDA_ERROR_OUT_OF_MEMORY; /* it is within the limit */
		free_block(b);
		return r;
	}
	if (!note((uint64_t)(uintptr_t)b, HOLD_PROGRAM, b)) {
		chunk_free(b, b->chunk, 0);
		free_block(b);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	blocks_lock();
	block_link(b);
	blocks_unlock();
	*handle = (CUmemHandle)(uintptr_t)b;
	return CUDA_SUCCESS;
}

bool program_release(CUmemHandle handle)
{
	struct block *b;

	blocks_lock();
	b = find(handle);
	if (b && b->refs > 0) {
		b->refs--;
		settle(b);
	} else {
		b = NULL; /* given back as often as it was taken: the driver knows no such handle */
	}
	blocks_unlock();
	return b != NULL;
}

bool program_map(CUmemHandle handle, CUdeviceptr at, size_t size, size_t offset, unsigned long long flags, CUresult *r)
{
	struct block *b = find(handle);
	struct mapping *m;

	if (!b)
		return false;
	m = calloc(1, sizeof *m);
	*r = m ? real_cuMemMap(at, size, offset, b->chunk->handle, flags) : CUDA_ERROR_OUT_OF_MEMORY;
	if (*r == CUDA_SUCCESS && !note(at, HOLD_MAPPING, b)) {
		real_cuMemUnmap(at, size);
		*r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (*r != CUDA_SUCCESS) {
		free(m);
		return true;
	}
	*m = (struct mapping){.at = at, .size = size, .offset = offset, .next = b->maps};
	b->maps = m;
	if (!b->ctx)
		real_cuCtxGetCurrent(&b->ctx);
	return true;
}

bool program_unmapped(CUdeviceptr at, uint64_t *size)
{
	struct mapping **p, *m;
	struct block *b;
	struct holding *h;

	ledger_lock();
	h = ledger_find(at, HOLD_MAPPING);
	b = h ? h->own : NULL;
	if (h)
		ledger_drop(h);
	ledger_unlock();
	if (!b)
		return false;
	for (p = &b->maps; (*p)->at != at; p = &(*p)->next)
		;
	m = *p;
	*p = m->next;
	*size = m->size;
	free(m);
	settle(b);
	return true;
}

bool program_retain(CUdeviceptr addr, CUmemHandle *handle)
{
	struct block *found = NULL;

	blocks_lock();
	for (struct block *b = blocks; b && !found; b = b->next)
		for (struct mapping *m = b->maps; m && !found; m = m->next)
			if (addr - m->at < m->size)
				found = b;
	if (found) {
		found->refs++;
		*handle = (CUmemHandle)(uintptr_t)found;
	}
	blocks_unlock();
	return found != NULL;
}

bool program_given(CUmemHandle handle)
{
	struct block *b;

	blocks_lock();
	b = find(handle);
	if (b)
		b->given = true;
	blocks_unlock();
	return b != NULL;
}

bool program_handle(CUmemHandle handle, CUmemHandle *real)
{
	struct block *b;

	blocks_lock();
	b = find(handle);
	if (b)
		*real = b->chunk->handle;
	blocks_unlock();
	return b != NULL;
}
