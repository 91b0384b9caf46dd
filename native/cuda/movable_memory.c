/*
 * Allocations that can be moved: a reserved range of addresses backed by chunks of up to 1 GiB. Small ones share a page.
 */
#include <stdlib.h>
#include <string.h>
#include "blocks.h"
#include "copy_streams.h"
#include "driver_symbols.h"
#include "ledger.h"
#include "memory_budget.h"
#include "movable_memory.h"
#include "streams.h"

#define PAGE (2 * MiB)
#define SMALL (MiB)
#define GRAIN 512
#define GRAINS (PAGE / GRAIN)

struct piece { struct block *block; uint64_t offset, size; CUcontext ctx; struct piece *later; };

static _Atomic(struct piece *) late; /* freed by the program while a capture was open */

/* ---- blocks ---- */

static void block_free(struct block *b)
{
	CUdeviceptr at = b->base;

	for (unsigned i = 0; i < b->chunks; at += b->chunk[i++].size)
		chunk_free(b, &b->chunk[i], at);
	if (b->base)
		real_cuMemAddressFree(b->base, b->size);
	memory_refund(b->device, b->size);
	free(b->grains);
	free(b->chunk);
	free(b);
}

static struct block *block_make(struct device *d, uint64_t bytes, CUresult *r)
{
	struct block *b = calloc(1, sizeof *b);
	uint64_t at = 0;

	*r = CUDA_ERROR_OUT_OF_MEMORY;
	if (!b)
		return NULL;
	b->device = d;
	b->prop = (CUmemProp){.type = CU_MEM_ALLOCATION_PINNED, .location = {CU_MEM_LOCATION_DEVICE, d->cu},
		.handle_types = d->posix_fd ? CU_MEM_HANDLE_POSIX_FD : 0}; /* any of it may be shared later */
	b->size = ROUND_UP(bytes, PAGE);
	b->chunk = calloc((b->size + GiB - 1) / GiB, sizeof *b->chunk);
	if (!b->chunk || !memory_charge(d, b->size)) {
		free(b->chunk);
		free(b);
		return NULL;
	}
	real_cuCtxGetCurrent(&b->ctx);
	*r = real_cuMemAddressReserve(&b->base, b->size, PAGE, 0, 0);
	while (*r == CUDA_SUCCESS && at < b->size) {
		struct chunk *c = &b->chunk[b->chunks];
		c->size = b->size - at < GiB ? b->size - at : GiB;
		if (chunk_make(b, c, b->base + at, r)) {
			b->chunks++;
			at += c->size;
		}
	}
	if (*r == CUDA_SUCCESS)
		return b;
	block_free(b);
	return NULL;
}

static void link_block(struct block *b)
{
	blocks_lock();
	block_link(b);
	blocks_unlock();
}

/* ---- small allocations share a block of one page ---- */

static bool grains_take(struct block *b, unsigned need, uint64_t *offset)
{
	unsigned run = 0;

	for (unsigned i = 0; i < GRAINS; i++) {
		run = b->grains[i] ? 0 : run + 1;
		if (run == need) {
			memset(b->grains + i + 1 - need, 1, need);
			b->taken += need;
			*offset = (uint64_t)(i + 1 - need) * GRAIN;
			return true;
		}
	}
	return false;
}

static struct block *small_block(struct device *d, CUcontext ctx, unsigned need, uint64_t *offset)
{
	for (struct block *b = blocks; b; b = b->next)
		if (b->grains && b->device == d && b->ctx == ctx && b->taken + need <= GRAINS && grains_take(b, need, offset))
			return b;
	return NULL;
}

static CUresult take_small(struct device *d, struct piece *p, uint64_t bytes)
{
	unsigned need = (unsigned)(ROUND_UP(bytes, GRAIN) / GRAIN);
	CUcontext ctx = NULL;
	CUresult r = CUDA_SUCCESS;

	real_cuCtxGetCurrent(&ctx);
	p->size = bytes;
	blocks_lock();
	p->block = small_block(d, ctx, need, &p->offset);
	blocks_unlock();
	if (p->block)
		return r;
	p->block = block_make(d, PAGE, &r);
	if (!p->block)
		return r;
	p->block->grains = calloc(1, GRAINS);
	if (!p->block->grains) {
		block_free(p->block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	grains_take(p->block, need, &p->offset);
	link_block(p->block);
	return r;
}

static CUresult take(struct device *d, struct piece *p, uint64_t bytes)
{
	CUresult r;

	if (bytes < SMALL)
		return take_small(d, p, bytes);
	p->block = block_make(d, bytes, &r);
	p->offset = 0;
	p->size = bytes;
	if (p->block)
		link_block(p->block);
	return r;
}

CUresult movable_alloc(struct device *d, CUdeviceptr *ptr, uint64_t bytes, bool *card_full)
{
	struct piece *p = calloc(1, sizeof *p);
	struct holding *h;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	*card_full = false;
	if (!p || bytes > atomic_load(&d->limit)) {
		free(p);
		return r;
	}
	r = take(d, p, bytes);
	if (r != CUDA_SUCCESS) {
		/* Out of memory within the limit: it is the card that is full. */
		*card_full = r == CUDA_ERROR_OUT_OF_MEMORY &&
			container_used(session.container, d->index) + ROUND_UP(bytes, PAGE) <= atomic_load(&d->limit);
		free(p);
		return r;
	}
	*ptr = p->block->base + p->offset;
	ledger_lock();
	h = ledger_add(*ptr, HOLD_OWN, d, 0);
	if (h)
		h->own = p;
	ledger_unlock();
	return CUDA_SUCCESS;
}

/* Neither the program nor another process has it any more. */
static bool unused(const struct block *b) { return b->freed && !b->taken && !b->importers; }

static struct piece *take_off(struct holding *h)
{
	struct piece *p = h->own;

	ledger_lock();
	ledger_drop(h);
	ledger_unlock();
	return p;
}

static void drop(struct piece *p)
{
	struct block *b = p->block;
	bool gone;

	blocks_lock();
	if (b->grains) {
		unsigned n = (unsigned)(ROUND_UP(p->size, GRAIN) / GRAIN);
		memset(b->grains + p->offset / GRAIN, 0, n);
		b->taken -= n;
	}
	b->freed = !b->taken;
	gone = unused(b);
	if (gone)
		block_unlink(b);
	blocks_unlock();
	if (gone)
		block_free(b);
	free(p);
}

void movable_drop(struct holding *h) { drop(take_off(h)); }

/*
 * What uses it ends first, as with the driver's own. To wait for a context spoils a capture in it, which the driver's call does
 * not where a thread captures for itself: the memory then goes when no capture is open.
 */
void movable_free(struct holding *h)
{
	struct piece *p = take_off(h), *first = atomic_load(&late);

	if (captures_hold_off()) {
		context_wait_current();
		captures_let_begin();
		drop(p);
		return;
	}
	real_cuCtxGetCurrent(&p->ctx);
	do {
		p->later = first;
	} while (!atomic_compare_exchange_weak(&late, &first, p));
	movable_free_late(); /* it may have ended meanwhile */
}

void movable_free_late(void)
{
	struct piece *all, *p;
	CUcontext waited = NULL;

	if (!atomic_load(&late) || !captures_hold_off())
		return;
	all = atomic_exchange(&late, NULL);
	for (p = all; p; p = p->later)
		if (p->ctx && p->ctx != waited)
			context_wait(waited = p->ctx);
	captures_let_begin();
	while ((p = all)) {
		all = p->later;
		drop(p);
	}
}

/* It has ended, and nothing uses what was its. */
void movable_forget_context(CUcontext ctx)
{
	struct piece *all = atomic_exchange(&late, NULL), *p, *first;

	while ((p = all)) {
		all = p->later;
		if (p->ctx == ctx) {
			drop(p);
			continue;
		}
		first = atomic_load(&late);
		do {
			p->later = first;
		} while (!atomic_compare_exchange_weak(&late, &first, p));
	}
}

void movable_fork_child(void) { atomic_store(&late, NULL); }

void movable_settle(void)
{
	struct block *b;

	do {
		blocks_lock();
		for (b = blocks; b && !unused(b); b = b->next)
			;
		if (b)
			block_unlink(b);
		blocks_unlock();
		if (b)
			block_free(b);
	} while (b);
}

struct owner_search { CUdeviceptr ptr, base; uint64_t size; struct piece *piece; };

static void match_piece(struct holding *h, void *arg)
{
	struct owner_search *s = arg;
	struct piece *p = h->own;

	if (h->kind == HOLD_OWN && s->ptr >= h->key && s->ptr < h->key + p->size) {
		s->base = h->key;
		s->size = p->size;
		s->piece = p;
	}
}

struct block *movable_block(CUdeviceptr ptr, uint64_t *offset, uint64_t *size)
{
	struct owner_search s = {.ptr = ptr};

	ledger_lock();
	ledger_each(match_piece, &s);
	if (s.piece) {
		*offset = s.piece->offset;
		*size = s.piece->size;
	}
	ledger_unlock();
	return s.piece ? s.piece->block : NULL;
}

bool movable_owns(CUdeviceptr ptr, CUdeviceptr *base, size_t *size)
{
	struct owner_search s = {.ptr = ptr};

	ledger_lock();
	ledger_each(match_piece, &s);
	ledger_unlock();
	if (base && s.size)
		*base = s.base;
	if (size && s.size)
		*size = s.size;
	return s.size != 0;
}
