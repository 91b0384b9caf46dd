/*
 * Device memory that can leave the card and come back to the same addresses.
 *
 * An allocation is a reserved range of addresses backed by chunks. Out: nobody is let into a call that touches memory,
 * what is in flight ends, chunks are copied to pinned host memory, unmapped and released. In: the way back.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "elastic.h"

#define PAGE (2 * MiB)
#define SMALL (MiB)
#define GRAIN 512
#define GRAINS (PAGE / GRAIN)
#define UP(n, to) (((n) + (to) - 1) / (to) * (to))
#define MARGIN (32 * MiB) /* what the driver may need beside */
#define QUIET_NS (30000 * MS)

struct chunk {
	CUmemHandle handle;
	uint64_t size;
	bool out;
	uint64_t at; /* in the host pool, while out */
};

/* A range of addresses with memory behind it; if small, shared by many allocations. */
struct block {
	struct device *device;
	CUcontext ctx;
	CUdeviceptr base;
	uint64_t size;
	unsigned chunks;
	struct chunk *chunk;
	unsigned char *grains; /* small blocks: which grains are taken */
	unsigned taken;
	struct block *next;
};

struct piece { struct block *block; uint64_t offset, size; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* the list of blocks */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER; /* one out or in at a time */
static struct block *blocks;
static _Atomic uint64_t out_bytes;
static _Atomic(const char *) pinned;
static _Atomic bool busy;                                 /* memory is on its way: what the driver reports is in between */

void swap_pin(const char *reason) { atomic_store(&pinned, reason); }
bool swap_is_busy(void) { return atomic_load(&busy); }
bool swap_is_out(void) { return atomic_load(&out_bytes) > 0; }

/* ---- chunks ---- */

static bool chunk_make(struct block *b, struct chunk *c, CUdeviceptr at, CUresult *r)
{
	CUmemProp prop = {.type = CU_MEM_ALLOCATION_PINNED, .location = {CU_MEM_LOCATION_DEVICE, b->device->cu}};
	CUmemAccess access[MAX_DEVICES] = {{prop.location, CU_MEM_ACCESS_READWRITE}};
	size_t n = 1;
	int can;

	for (int i = 0; i < session.devices; i++) {
		CUdevice peer = session.device[i].cu;
		if (peer != b->device->cu && real_cuDeviceCanAccessPeer && real_cuDeviceCanAccessPeer(&can, peer, b->device->cu) == CUDA_SUCCESS && can)
			access[n++] = (CUmemAccess){{CU_MEM_LOCATION_DEVICE, peer}, CU_MEM_ACCESS_READWRITE};
	}
	*r = real_cuMemCreate(&c->handle, c->size, &prop, 0);
	if (*r != CUDA_SUCCESS)
		return false;
	*r = real_cuMemMap(at, c->size, 0, c->handle, 0);
	if (*r == CUDA_SUCCESS) {
		*r = real_cuMemSetAccess(at, c->size, access, n);
		if (*r == CUDA_SUCCESS) {
			residency_changed(b->device, (int64_t)c->size);
			return true;
		}
		real_cuMemUnmap(at, c->size);
	}
	real_cuMemRelease(c->handle);
	return false;
}

static void chunk_free(struct block *b, struct chunk *c, CUdeviceptr at)
{
	real_cuMemUnmap(at, c->size);
	real_cuMemRelease(c->handle);
	residency_changed(b->device, -(int64_t)c->size);
}

/* ---- blocks ---- */

static void block_free(struct block *b)
{
	CUdeviceptr at = b->base;

	for (unsigned i = 0; i < b->chunks; at += b->chunk[i++].size)
		chunk_free(b, &b->chunk[i], at);
	if (b->base)
		real_cuMemAddressFree(b->base, b->size);
	refund(b->device, b->size);
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
	b->size = UP(bytes, PAGE);
	b->chunk = calloc((b->size + GiB - 1) / GiB, sizeof *b->chunk);
	if (!b->chunk || !charge(d, b->size)) {
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

static void block_link(struct block *b)
{
	pthread_mutex_lock(&lock);
	b->next = blocks;
	blocks = b;
	pthread_mutex_unlock(&lock);
}

static void block_unlink(struct block *b)
{
	for (struct block **p = &blocks; *p; p = &(*p)->next)
		if (*p == b) {
			*p = b->next;
			return;
		}
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
	unsigned need = (unsigned)(UP(bytes, GRAIN) / GRAIN);
	CUcontext ctx = NULL;
	CUresult r = CUDA_SUCCESS;

	real_cuCtxGetCurrent(&ctx);
	p->size = bytes;
	pthread_mutex_lock(&lock);
	p->block = small_block(d, ctx, need, &p->offset);
	pthread_mutex_unlock(&lock);
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
	block_link(p->block);
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
		block_link(p->block);
	return r;
}

CUresult swap_alloc(struct device *d, CUdeviceptr *ptr, uint64_t bytes, bool *card_full)
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
			region_used(session.region, d->index) + UP(bytes, PAGE) <= atomic_load(&d->limit);
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

void swap_free(struct holding *h)
{
	struct piece *p = h->own;
	struct block *b = p->block;
	bool empty = true;

	if (real_cuCtxSynchronize)
		real_cuCtxSynchronize(); /* as the driver's own free does: nothing may still be using it */
	ledger_lock();
	ledger_drop(h);
	ledger_unlock();
	pthread_mutex_lock(&lock);
	if (b->grains) {
		unsigned n = (unsigned)(UP(p->size, GRAIN) / GRAIN);
		memset(b->grains + p->offset / GRAIN, 0, n);
		b->taken -= n;
		empty = b->taken == 0;
	}
	if (empty)
		block_unlink(b);
	pthread_mutex_unlock(&lock);
	if (empty)
		block_free(b);
	free(p);
}

struct owner_search { CUdeviceptr ptr, base; uint64_t size; };

static void match_piece(struct holding *h, void *arg)
{
	struct owner_search *s = arg;
	struct piece *p = h->own;

	if (h->kind == HOLD_OWN && s->ptr >= h->key && s->ptr < h->key + p->size) {
		s->base = h->key;
		s->size = p->size;
	}
}

bool swap_owns(CUdeviceptr ptr, CUdeviceptr *base, size_t *size)
{
	struct owner_search s = {.ptr = ptr};

	if (!blocks)
		return false;
	ledger_lock();
	ledger_each(match_piece, &s);
	ledger_unlock();
	if (base && s.size)
		*base = s.base;
	if (size && s.size)
		*size = s.size;
	return s.size != 0;
}

/* ---- out and in ---- */

static void *fail(struct swap_result *r, const char *why)
{
	snprintf(r->why, sizeof r->why, "%s", why);
	return NULL;
}

static void find_unmovable(struct holding *h, void *arg)
{
	static const char *const names[] = {
		[HOLD_PTR] = "memory from before swapping was allowed", [HOLD_ARRAY] = "arrays",
		[HOLD_VMM] = "the program's own virtual memory management", [HOLD_POOL] = "memory pools",
		[HOLD_IPC] = "memory of another process", [HOLD_EXTERNAL] = "external memory",
	};
	const char **why = arg;

	if (h->bytes && names[h->kind])
		*why = names[h->kind];
}

/* Why this process cannot be moved; NULL if it can. */
static const char *unmovable(void)
{
	const char *why = atomic_load(&pinned);

	if (!atomic_load(&session.swap))
		return "swapping is not allowed for this container";
	for (int i = 0; i < session.devices; i++)
		pools_refresh(&session.device[i], true);
	ledger_lock();
	if (!why)
		ledger_each(find_unmovable, &why);
	ledger_unlock();
	return why;
}

/* One stream per context, made once; there are as many contexts as cards in all but odd programs. */
static CUstream copy_stream(CUcontext ctx)
{
	static struct { CUcontext ctx; CUstream stream; } made[2 * MAX_DEVICES];

	real_cuCtxSetCurrent(ctx);
	for (int i = 0; i < 2 * MAX_DEVICES; i++) {
		if (!made[i].ctx && real_cuStreamCreate(&made[i].stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
			made[i].ctx = ctx;
		if (made[i].ctx == ctx)
			return made[i].stream;
	}
	return NULL;
}

static CUresult copy_chunk(struct block *b, struct chunk *c, CUdeviceptr at, bool out)
{
	CUstream stream = copy_stream(b->ctx);
	CUresult r = CUDA_SUCCESS;
	uint64_t done = 0, n;

	for (; r == CUDA_SUCCESS && done < c->size; done += n) {
		void *host = host_piece(c->at + done, c->size - done, &n);
		r = out ? real_cuMemcpyDtoHAsync_v2(host, at + done, n, stream) : real_cuMemcpyHtoDAsync_v2(at + done, host, n, stream);
	}
	return r;
}

static CUresult settle_copies(void)
{
	CUresult r = CUDA_SUCCESS;

	for (struct block *b = blocks; b && r == CUDA_SUCCESS; b = b->next)
		r = real_cuStreamSynchronize(copy_stream(b->ctx));
	return r;
}

static CUresult settle_contexts(void)
{
	CUcontext done = NULL;
	CUresult r = CUDA_SUCCESS;

	for (struct block *b = blocks; b && r == CUDA_SUCCESS; b = b->next) {
		if (b->ctx == done)
			continue;
		real_cuCtxSetCurrent(b->ctx);
		r = real_cuCtxSynchronize();
		done = b->ctx;
	}
	return r;
}

#define EACH_CHUNK(b, c, ptr) \
	for (struct block *b = blocks; b; b = b->next) \
		for (CUdeviceptr ptr = b->base, step_ = 0; step_ < b->chunks; ptr += b->chunk[step_++].size) \
			for (struct chunk *c = &b->chunk[step_]; c; c = NULL)

/* Chooses chunks and copies them; they are on the host and on the card when this succeeds. */
static uint64_t copy_out(uint64_t want, struct swap_result *r)
{
	uint64_t chosen = 0;
	int64_t begin = now_ns();
	CUresult result = settle_contexts();

	EACH_CHUNK(b, c, at) {
		if (c->out || chosen >= want || result != CUDA_SUCCESS)
			continue;
		if (!host_take(c->size, &c->at)) {
			fail(r, "no host memory");
			return 0;
		}
		result = copy_chunk(b, c, at, true);
		c->out = true;
		chosen += c->size;
	}
	if (result == CUDA_SUCCESS)
		result = settle_copies();
	r->copy_s = (double)(now_ns() - begin) / 1e9;
	if (result != CUDA_SUCCESS) {
		snprintf(r->why, sizeof r->why, "the driver answered %d", result);
		return 0;
	}
	return chosen;
}

static uint64_t resident_bytes(void)
{
	uint64_t sum = 0;
	EACH_CHUNK(b, c, at) {
		(void)at;
		sum += c->out ? 0 : c->size;
	}
	return sum;
}

static void count_swapped(struct device *d, int64_t delta)
{
	atomic_fetch_add(&session.region->process[atomic_load(&session.process)].swapped[d->index], (uint64_t)delta);
}

/* handle 0 marks a chunk that has left the card; until then "out" only means chosen. */
static void release_chosen(void)
{
	EACH_CHUNK(b, c, at) {
		if (!c->out || !c->handle)
			continue;
		chunk_free(b, c, at);
		c->handle = 0;
		atomic_fetch_add(&out_bytes, c->size);
		count_swapped(b->device, (int64_t)c->size);
	}
}

static void unchoose(void)
{
	EACH_CHUNK(b, c, at) {
		(void)at;
		if (c->handle)
			c->out = false;
	}
}

static void moved(void)
{
	for (int i = 0; i < session.devices; i++)
		atomic_fetch_add(&session.device[i].changes, 1);
	atomic_store(&busy, false);
}

void swap_out(uint64_t bytes, struct swap_result *r)
{
	int64_t begin = now_ns();
	const char *why;

	memset(r, 0, sizeof *r);
	pthread_mutex_lock(&order);
	why = unmovable();
	if (why) {
		fail(r, why);
	} else if (!swap_is_out() && !gate_hold(begin + QUIET_NS)) {
		fail(r, "calls into the driver did not end");
	} else {
		uint64_t there = resident_bytes();
		atomic_store(&busy, true);
		pthread_mutex_lock(&lock);
		r->bytes = copy_out(bytes < there ? bytes : there, r);
		r->done = r->bytes || (!there && !*r->why);
		if (r->done)
			release_chosen();
		else
			unchoose();
		pthread_mutex_unlock(&lock);
		moved();
		if (!swap_is_out()) {
			host_reset();
			gate_release();
		}
	}
	r->total_s = (double)(now_ns() - begin) / 1e9;
	pthread_mutex_unlock(&order);
}

static bool room_for(uint64_t bytes, uint64_t *missing)
{
	size_t free_now = 0, total;

	if (blocks)
		real_cuCtxSetCurrent(blocks->ctx);
	if (!real_cuMemGetInfo_v2 || real_cuMemGetInfo_v2(&free_now, &total) != CUDA_SUCCESS)
		return true; /* cannot be asked: try */
	*missing = free_now < bytes + MARGIN ? bytes + MARGIN - free_now : 0;
	return *missing == 0;
}

static CUresult copy_in(void)
{
	CUresult r = CUDA_SUCCESS;

	EACH_CHUNK(b, c, at) {
		if (!c->out || r != CUDA_SUCCESS)
			continue;
		real_cuCtxSetCurrent(b->ctx);
		if (!chunk_make(b, c, at, &r)) {
			c->handle = 0;
			continue;
		}
		r = copy_chunk(b, c, at, false);
	}
	if (r == CUDA_SUCCESS)
		r = settle_copies();
	EACH_CHUNK(b, c, at) {
		if (!c->out || !c->handle)
			continue;
		if (r != CUDA_SUCCESS) { /* the host still has it all */
			chunk_free(b, c, at);
			c->handle = 0;
		} else {
			c->out = false;
			count_swapped(b->device, -(int64_t)c->size);
		}
	}
	return r;
}

void swap_in(struct swap_result *r, uint64_t *missing)
{
	int64_t begin = now_ns();
	uint64_t bytes;
	CUresult result;

	memset(r, 0, sizeof *r);
	*missing = 0;
	pthread_mutex_lock(&order);
	bytes = atomic_load(&out_bytes);
	atomic_store(&busy, true);
	pthread_mutex_lock(&lock);
	if (!bytes) {
		r->done = true;
	} else if (!room_for(bytes, missing)) {
		snprintf(r->why, sizeof r->why, "the card lacks %llu bytes", (unsigned long long)*missing);
	} else if ((result = copy_in()) != CUDA_SUCCESS) {
		*missing = result == CUDA_ERROR_OUT_OF_MEMORY ? 8 * MARGIN : 0; /* somebody was faster, or the pieces do not fit */
		snprintf(r->why, sizeof r->why, "the driver answered %d", result);
	} else {
		r->done = true;
		r->bytes = bytes;
		atomic_store(&out_bytes, 0);
		host_reset();
	}
	pthread_mutex_unlock(&lock);
	moved();
	r->copy_s = r->total_s = (double)(now_ns() - begin) / 1e9;
	if (r->done)
		gate_release();
	pthread_mutex_unlock(&order);
}

void swap_prepare(uint64_t bytes, struct swap_result *r)
{
	int64_t begin = now_ns();

	memset(r, 0, sizeof *r);
	pthread_mutex_lock(&order);
	if (blocks)
		real_cuCtxSetCurrent(blocks->ctx);
	if (!blocks)
		fail(r, "no memory on the card yet");
	else if (!(r->done = host_prepare(bytes)))
		fail(r, "no host memory");
	r->bytes = host_prepared();
	r->total_s = (double)(now_ns() - begin) / 1e9;
	pthread_mutex_unlock(&order);
}

void swap_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_init(&order, NULL);
	blocks = NULL;
	atomic_store(&out_bytes, 0);
	atomic_store(&pinned, NULL);
	host_fork_child();
}
