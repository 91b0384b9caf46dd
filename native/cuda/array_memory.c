/*
 * CUDA arrays that can be moved. The driver makes them with "deferred mapping": without memory, which is put behind them
 * afterwards. Other memory may take its place later, and the handle, and the textures made of it, go on to be good. Such
 * memory has no address, so it is copied level by level, in rows. Small arrays share a page.
 */
#include <stdlib.h>
#include "array_memory.h"
#include "copy_streams.h"
#include "driver_symbols.h"
#include "host_pool.h"
#include "ledger.h"
#include "memory_budget.h"

#define PAGE (2 * MiB)
#define TILE ((uint64_t)64 * 1024) /* memory is put behind an array in steps of this */
#define MOVABLE_FLAGS (CU_ARRAY_LAYERED | CU_ARRAY_SURFACE | CU_ARRAY_CUBEMAP | CU_ARRAY_GATHER)
#define MAX_LEVELS 32

/* ---- shape ---- */

/* Bytes of one channel; 0: formats of several planes, of compressed blocks, and what came later, which we do not copy. */
static unsigned channel_bytes(int format)
{
	switch (format) {
	case 0x01: case 0x08: return 1;
	case 0x02: case 0x09: case 0x10: return 2;
	case 0x03: case 0x0a: case 0x20: return 4;
	default: return 0;
	}
}

/* The driver makes no more levels than there are, down to one element. */
static unsigned levels_of(const CUarray3DDesc *d, unsigned asked)
{
	size_t most = d->width > d->height ? d->width : d->height;
	unsigned n = 1;

	if (!(d->flags & (CU_ARRAY_LAYERED | CU_ARRAY_CUBEMAP)) && d->depth > most)
		most = d->depth;
	while (most >> n)
		n++;
	return !asked ? 1 : asked < n ? asked : n;
}

static size_t at_level(size_t n, unsigned level) { return n >> level ? n >> level : 1; }

static void shape(struct array *a, const CUarray3DDesc *d)
{
	bool sliced = d->flags & (CU_ARRAY_LAYERED | CU_ARRAY_CUBEMAP); /* layers do not get fewer */
	uint64_t element = (uint64_t)channel_bytes(d->format) * d->channels;

	for (unsigned i = 0; i < a->levels; i++)
		a->level[i] = (struct array_level){NULL, at_level(d->width, i) * element, at_level(d->height, i), sliced ? at_level(d->depth, 0) : at_level(d->depth, i)};
}

static uint64_t level_bytes(const struct array_level *l) { return l->row * l->rows * l->slices; }

static uint64_t copied_bytes(const struct array *a)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < a->levels; i++)
		sum += level_bytes(&a->level[i]);
	return sum;
}

/* ---- the driver's array, still without memory ---- */

static bool driver_can(void)
{
	return real_cuArrayGetMemoryRequirements && real_cuMipmappedArrayGetMemoryRequirements && real_cuMemMapArrayAsync &&
		real_cuMipmappedArrayGetLevel && real_cuMipmappedArrayCreate && real_cuMemcpy3DAsync_v2;
}

static void destroy(struct array *a)
{
	if (a->mipmapped)
		real_cuMipmappedArrayDestroy(a->handle);
	else
		real_cuArrayDestroy(a->handle);
}

static CUresult create(struct array *a, const CUarray3DDesc *desc, unsigned levels)
{
	CUarray3DDesc d = *desc;

	d.flags |= CU_ARRAY_DEFERRED;
	return a->mipmapped ? real_cuMipmappedArrayCreate(&a->handle, &d, levels) : real_cuArray3DCreate_v2(&a->handle, &d);
}

/* What it needs of memory, and its levels; false if we cannot serve that. */
static bool learn(struct device *d, struct array *a)
{
	CUarrayMemory m = {0};
	CUresult r = a->mipmapped ? real_cuMipmappedArrayGetMemoryRequirements(&m, a->handle, d->cu) : real_cuArrayGetMemoryRequirements(&m, a->handle, d->cu);

	for (unsigned i = 0; i < a->levels && r == CUDA_SUCCESS; i++) {
		a->level[i].array = a->handle;
		if (a->mipmapped)
			r = real_cuMipmappedArrayGetLevel(&a->level[i].array, a->handle, i);
	}
	a->size = ROUND_UP(m.size, TILE);
	a->align = m.alignment > TILE ? m.alignment : TILE;
	return r == CUDA_SUCCESS && m.size && a->align % TILE == 0 && copied_bytes(a) <= a->size;
}

static void forget(struct array *a)
{
	free(a->level);
	free(a);
}

static struct array *array_new(struct device *d, const CUarray3DDesc *desc, unsigned levels)
{
	struct array *a;

	if (!driver_can() || (desc->flags & ~(unsigned)MOVABLE_FLAGS) || !channel_bytes(desc->format) || !desc->width)
		return NULL;
	a = calloc(1, sizeof *a);
	if (!a)
		return NULL;
	a->mipmapped = levels > 0;
	a->levels = levels_of(desc, levels);
	a->level = a->levels <= MAX_LEVELS ? calloc(a->levels, sizeof *a->level) : NULL;
	if (!a->level || create(a, desc, levels) != CUDA_SUCCESS) {
		forget(a);
		return NULL;
	}
	shape(a, desc);
	if (learn(d, a))
		return a;
	destroy(a);
	forget(a);
	return NULL;
}

/* ---- its place in a block ---- */

static bool place_in(struct block *b, struct array *a)
{
	struct array **p = &b->arrays;

	for (a->at = 0; *p && (*p)->at < a->at + a->size; p = &(*p)->next)
		a->at = ROUND_UP((*p)->at + (*p)->size, a->align);
	if (a->at + a->size > b->size)
		return false;
	a->block = b;
	a->next = *p;
	*p = a;
	return true;
}

static bool place_in_page(struct device *d, CUcontext ctx, struct array *a)
{
	bool placed = false;

	blocks_lock();
	for (struct block *b = blocks; b && !placed; b = b->next)
		placed = b->tiles && b->size == PAGE && b->device == d && b->ctx == ctx && place_in(b, a);
	blocks_unlock();
	return placed;
}

static void free_block(struct block *b)
{
	memory_refund(b->device, b->size);
	free(b->chunk);
	free(b);
}

static CUresult place_in_new(struct device *d, CUcontext ctx, struct array *a)
{
	struct block *b = calloc(1, sizeof *b);
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (b)
		b->chunk = calloc(1, sizeof *b->chunk);
	if (!b || !b->chunk || !memory_charge(d, ROUND_UP(a->size, PAGE))) {
		if (b)
			free(b->chunk);
		free(b);
		return r;
	}
	b->device = d;
	b->ctx = ctx;
	b->prop = (CUmemProp){.type = CU_MEM_ALLOCATION_PINNED, .location = {CU_MEM_LOCATION_DEVICE, d->cu}, .usage = CU_MEM_CREATE_USAGE_TILE_POOL};
	b->size = b->chunk->size = ROUND_UP(a->size, PAGE);
	b->chunks = 1;
	b->tiles = true;
	if (!chunk_make(b, b->chunk, 0, &r)) {
		free_block(b);
		return r;
	}
	blocks_lock();
	place_in(b, a);
	block_link(b);
	blocks_unlock();
	return r;
}

/* Takes it out of its block, which goes with its last array. */
static void leave(struct array *a)
{
	struct block *b = a->block;
	struct array **p;
	bool empty;

	blocks_lock();
	for (p = &b->arrays; *p != a; p = &(*p)->next)
		;
	*p = a->next;
	empty = !b->arrays;
	if (empty)
		block_unlink(b);
	blocks_unlock();
	if (!empty)
		return;
	chunk_free(b, b->chunk, 0);
	free_block(b);
}

static CUresult place(struct device *d, struct array *a)
{
	CUcontext ctx = NULL;
	CUresult r = CUDA_SUCCESS;

	real_cuCtxGetCurrent(&ctx);
	if (!place_in_page(d, ctx, a))
		r = place_in_new(d, ctx, a);
	if (r != CUDA_SUCCESS)
		return r;
	r = array_map(a, a->block->chunk);
	if (r != CUDA_SUCCESS)
		leave(a);
	return r;
}

/* ---- what the program knows of it ---- */

static bool note(void *key, enum holding_kind kind, struct array *a)
{
	struct holding *h;

	ledger_lock();
	h = ledger_add((uint64_t)(uintptr_t)key, kind, a->block->device, 0);
	if (h)
		h->own = a;
	ledger_unlock();
	return h != NULL;
}

/* Under the ledger's lock. */
static void drop_note(void *key, enum holding_kind kind)
{
	struct holding *h = ledger_find((uint64_t)(uintptr_t)key, kind);

	if (h)
		ledger_drop(h);
}

static void drop_notes(struct array *a)
{
	drop_note(a->handle, HOLD_TILED);
	for (unsigned i = 0; i < a->levels && a->mipmapped; i++)
		drop_note(a->level[i].array, HOLD_LEVEL);
}

static bool note_all(struct array *a)
{
	bool ok = note(a->handle, HOLD_TILED, a);

	for (unsigned i = 0; i < a->levels && a->mipmapped && ok; i++)
		ok = note(a->level[i].array, HOLD_LEVEL, a);
	if (!ok) {
		ledger_lock();
		drop_notes(a);
		ledger_unlock();
	}
	return ok;
}

/* Only the handle itself: a level is not the program's to destroy. */
static struct array *take(void *array)
{
	struct array *a = NULL;
	struct holding *h;

	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)array, HOLD_TILED);
	if (h) {
		a = h->own;
		drop_notes(a);
	}
	ledger_unlock();
	return a;
}

bool array_make(struct device *d, void **array, const CUarray3DDesc *desc, unsigned levels, CUresult *r, bool *card_full)
{
	struct array *a = array_new(d, desc, levels);

	*card_full = false;
	if (!a)
		return false;
	*r = place(d, a);
	if (*r == CUDA_SUCCESS && !note_all(a)) {
		array_unmap(a);
		leave(a);
		*r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (*r == CUDA_SUCCESS) {
		*array = a->handle;
		return true;
	}
	/* Out of memory within the limit: it is the card that is full. */
	*card_full = *r == CUDA_ERROR_OUT_OF_MEMORY &&
		container_used(session.container, d->index) + ROUND_UP(a->size, PAGE) <= atomic_load(&d->limit);
	destroy(a);
	forget(a);
	return *r == CUDA_ERROR_OUT_OF_MEMORY; /* anything else: memory cannot be put behind this one */
}

/* Out of the ledger first: the driver may give another thread the same handle as soon as it is free. */
bool array_destroy(void *array, CUresult (*real)(void *), CUresult *r)
{
	struct array *a = take(array);

	if (!a)
		return false;
	context_wait(block_context(a->block)); /* as the driver waits for what uses it */
	array_unmap(a);
	*r = real(array);
	if (*r != CUDA_SUCCESS) {
		array_map(a, a->block->chunk);
		note_all(a);
		return true;
	}
	leave(a);
	forget(a);
	return true;
}

bool array_is_ours(void *array)
{
	uint64_t key = (uint64_t)(uintptr_t)array;
	bool found;

	ledger_lock();
	found = ledger_find(key, HOLD_TILED) || ledger_find(key, HOLD_LEVEL);
	ledger_unlock();
	return found;
}

bool array_level(CUmipmappedArray array, unsigned n, CUarray *level)
{
	struct holding *h;
	struct array *a;

	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)array, HOLD_TILED);
	a = h ? h->own : NULL;
	if (a && a->mipmapped && n < a->levels)
		*level = a->level[n].array;
	else
		a = NULL;
	ledger_unlock();
	return a != NULL;
}

struct of_context { CUcontext ctx; struct array *gone; };

static void collect(struct holding *h, void *arg)
{
	struct of_context *c = arg;

	if (h->kind == HOLD_TILED && !c->gone && ((struct array *)h->own)->block->ctx == c->ctx)
		c->gone = h->own;
}

/* The arrays went with their context, and what was mapped behind them; their memory is still ours. */
void arrays_forget_context(CUcontext ctx)
{
	for (;;) {
		struct of_context c = {ctx, NULL};
		ledger_lock();
		ledger_each(collect, &c);
		if (c.gone)
			drop_notes(c.gone);
		ledger_unlock();
		if (!c.gone)
			return;
		leave(c.gone);
		forget(c.gone);
	}
}

/* ---- copies ---- */

/* The largest box at that place of a level which fits into so many bytes: slices, rows, or a part of a row. */
static CUcopy3D box_at(const struct array_level *l, uint64_t done, uint64_t bytes)
{
	uint64_t slice = l->row * l->rows, x = done % l->row, y = done / l->row % l->rows;
	CUcopy3D c = {.src = {.x = x, .y = y, .z = done / slice}, .width = l->row, .height = 1, .depth = 1};

	if (x || bytes < l->row)
		c.width = bytes < l->row - x ? bytes : l->row - x;
	else if (y || bytes < slice)
		c.height = bytes / l->row < l->rows - y ? bytes / l->row : l->rows - y;
	else
		c.height = l->rows, c.depth = bytes / slice;
	return c;
}

static CUresult copy_level(const struct array_level *l, uint64_t at, CUstream stream, bool out)
{
	uint64_t bytes = level_bytes(l), n;
	CUresult r = CUDA_SUCCESS;

	for (uint64_t done = 0; r == CUDA_SUCCESS && done < bytes; done += n) {
		void *host = host_piece(at + done, bytes - done, &n);
		CUcopy3D c = box_at(l, done, n);
		CUcopyEnd there = {.type = CU_MEMORY_HOST, .host = host, .pitch = l->row, .height = l->rows};
		c.src.type = CU_MEMORY_ARRAY;
		c.src.array = l->array;
		c.dst = out ? there : c.src;
		c.src = out ? c.src : there;
		n = c.width * c.height * c.depth;
		r = real_cuMemcpy3DAsync_v2(&c, stream);
	}
	return r;
}

CUresult arrays_copy(struct block *b, struct chunk *c, CUstream stream, bool out)
{
	CUresult r = CUDA_SUCCESS;

	for (struct array *a = b->arrays; a; a = a->next) {
		uint64_t at = c->at + a->at;
		for (unsigned i = 0; i < a->levels && r == CUDA_SUCCESS; at += level_bytes(&a->level[i++]))
			r = copy_level(&a->level[i], at, stream, out);
	}
	return r;
}
