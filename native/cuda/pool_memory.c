/*
 * Stream-ordered memory that can be moved. The driver's pools cannot be, so in a container that can be swapped an
 * allocation from a pool is one of ours. What is freed on a stream is retained: the same stream has it again at once, others
 * when that stream has got there. What is retained and not needed is let go when memory is short, when the program trims
 * the pool, above the pool's threshold, and before the process moves out.
 */
#include <pthread.h>
#include <stdlib.h>
#include "driver_symbols.h"
#include "ledger.h"
#include "movable_memory.h"
#include "pool_memory.h"
#include "streams.h"

#define BUCKETS 1024
#define SLACK (64 * MiB) /* retained beyond the threshold, which is 0 unless the program says otherwise */

struct pool {
	CUmemPool key;           /* NULL when the program has destroyed it */
	uint64_t used, retained, used_high, reserved_high, threshold;
	bool exported;
	struct pool *next;
};

struct pooled {
	CUdeviceptr ptr;
	uint64_t size;           /* rounded: what is retained serves requests of just this size */
	struct pool *pool;
	struct device *device;
	CUcontext ctx;
	CUstream stream;         /* that freed it; the thread's own: none in particular */
	CUevent freed;
	struct pooled *next;     /* in its bucket */
	struct pooled *older, *newer;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool *pools;
static struct pooled *buckets[BUCKETS]; /* what is retained, by size */
static struct pooled *oldest, *newest;

/* Eight sizes to a doubling up to 64 MiB, so that sizes that differ a little serve one another. */
static uint64_t rounded(uint64_t bytes)
{
	uint64_t step = 512;

	while (bytes <= 64 * MiB && step * 16 <= bytes)
		step *= 2;
	if (bytes >= MiB && step < 2 * MiB)
		step = 2 * MiB;
	return bytes > (uint64_t)1 << 60 ? bytes : ROUND_UP(bytes, step);
}

static struct pooled **bucket(uint64_t size) { return &buckets[(size * 0x9e3779b97f4a7c15) >> 54]; }

/* What a destroyed pool leaves is used for the next one once nothing of it is left. */
static struct pool *pool_of(CUmemPool key)
{
	struct pool *p, *free_one = NULL;

	for (p = pools; p && p->key != key; p = p->next)
		if (!p->key && !p->used && !p->retained)
			free_one = p;
	if (p)
		return p;
	p = free_one ? free_one : calloc(1, sizeof *p);
	if (!p)
		return NULL;
	if (!free_one) {
		p->next = pools;
		pools = p;
	}
	*p = (struct pool){.key = key, .next = p->next};
	return p;
}

static void count_high(struct pool *p)
{
	if (p->used > p->used_high)
		p->used_high = p->used;
	if (p->used + p->retained > p->reserved_high)
		p->reserved_high = p->used + p->retained;
}

/* ---- what is retained ---- */

static void retain(struct pooled *a)
{
	a->next = *bucket(a->size);
	*bucket(a->size) = a;
	a->newer = NULL;
	a->older = newest;
	*(newest ? &newest->newer : &oldest) = a;
	newest = a;
	a->pool->retained += a->size;
}

static void unretain(struct pooled *a)
{
	struct pooled **p = bucket(a->size);

	while (*p != a)
		p = &(*p)->next;
	*p = a->next;
	*(a->older ? &a->older->newer : &oldest) = a->newer;
	*(a->newer ? &a->newer->older : &newest) = a->older;
	a->pool->retained -= a->size;
}

static bool same_stream(const struct pooled *a, CUstream stream)
{
	return a->stream == stream && (uintptr_t)stream != CU_STREAM_PER_THREAD;
}

static bool is_over(struct pooled *a, bool wait)
{
	return (wait ? real_cuEventSynchronize(a->freed) : real_cuEventQuery(a->freed)) == CUDA_SUCCESS;
}

static struct pooled *take_retained(struct device *d, struct pool *p, uint64_t size, CUcontext ctx, CUstream stream)
{
	struct pooled *found = NULL;

	for (struct pooled *a = *bucket(size); a && !found; a = a->next)
		if (a->size == size && a->pool == p && a->device == d && a->ctx == ctx && same_stream(a, stream))
			found = a;
	for (struct pooled *a = *bucket(size); a && !found; a = a->next)
		if (a->size == size && a->pool == p && a->device == d && a->ctx == ctx && is_over(a, false))
			found = a;
	if (found)
		unretain(found);
	return found;
}

/* Takes out what is retained and over, oldest first, until the pool (NULL: each) has no more than that. They are freed later. */
static struct pooled *take_unused(CUmemPool pool, uint64_t retain, bool wait)
{
	struct pooled *gone = NULL;

	for (struct pooled *a = oldest, *newer; a; a = newer) {
		newer = a->newer;
		if ((pool && a->pool->key != pool) || a->pool->used + a->pool->retained <= retain || !is_over(a, wait))
			continue;
		unretain(a);
		a->next = gone;
		gone = a;
	}
	return gone;
}

static void forget(struct pooled *a)
{
	if (a->freed)
		real_cuEventDestroy_v2(a->freed);
	free(a);
}

/* Without the lock: memory that is given back may be asked for by others that wait for it. */
static void let_go(struct pooled *gone)
{
	while (gone) {
		struct pooled *next = gone->next;
		struct holding *h;

		ledger_lock();
		h = ledger_find(gone->ptr, HOLD_OWN);
		ledger_unlock();
		if (h)
			movable_drop(h);
		forget(gone);
		gone = next;
	}
}

static void trim(CUmemPool pool, uint64_t retain, bool wait)
{
	struct relaxed relaxed = capture_relax();
	struct pooled *gone;

	pthread_mutex_lock(&lock);
	gone = take_unused(pool, retain, wait);
	pthread_mutex_unlock(&lock);
	let_go(gone);
	capture_unrelax(relaxed);
}

void pooled_trim(CUmemPool pool, uint64_t retain) { trim(pool, retain, false); }
void pooled_trim_all(bool wait) { trim(NULL, 0, wait && !captures_open()); }

/* ---- allocations ---- */

static struct holding *note(struct pooled *a)
{
	struct holding *h;

	ledger_lock();
	h = ledger_add(a->ptr, HOLD_POOLED, a->device, 0);
	if (h)
		h->own = a;
	ledger_unlock();
	return h;
}

static struct pooled *take_note(CUdeviceptr ptr)
{
	struct pooled *a = NULL;
	struct holding *h;

	ledger_lock();
	h = ledger_find(ptr, HOLD_POOLED);
	if (h) {
		a = h->own;
		ledger_drop(h);
	}
	ledger_unlock();
	return a;
}

static CUresult make(struct device *d, struct pooled *a, uint64_t size, bool *card_full)
{
	CUresult r = movable_alloc(d, &a->ptr, size, card_full);

	if (r == CUDA_ERROR_OUT_OF_MEMORY && oldest) {
		pooled_trim_all(true);
		r = movable_alloc(d, &a->ptr, size, card_full);
	}
	return r;
}

CUresult pooled_alloc(struct device *d, CUmemPool pool, CUdeviceptr *ptr, uint64_t bytes, CUstream stream, bool *card_full)
{
	struct relaxed relaxed = capture_relax();
	uint64_t size = rounded(bytes);
	CUresult r = CUDA_SUCCESS;
	CUcontext ctx = NULL;
	struct pooled *a;
	struct pool *p;

	*card_full = false;
	real_cuCtxGetCurrent(&ctx);
	pthread_mutex_lock(&lock);
	p = pool_of(pool);
	a = p ? take_retained(d, p, size, ctx, stream) : NULL;
	if (p)
		p->used += size; /* so that it stays */
	pthread_mutex_unlock(&lock);
	if (!p)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	else if (!a && !(a = calloc(1, sizeof *a)))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	else if (!a->ptr)
		r = make(d, a, size, card_full);
	if (r == CUDA_SUCCESS) {
		a->size = size;
		a->pool = p;
		a->device = d;
		a->ctx = ctx;
		note(a);
		*ptr = a->ptr;
	}
	pthread_mutex_lock(&lock);
	if (r == CUDA_SUCCESS)
		count_high(p);
	else if (p)
		p->used -= size;
	pthread_mutex_unlock(&lock);
	if (r != CUDA_SUCCESS)
		free(a);
	capture_unrelax(relaxed);
	return r;
}

/* Freed inside a graph that is captured, it may be used by every launch of that graph: it is not given to anybody else. */
static bool free_pooled(CUdeviceptr ptr, CUstream stream)
{
	struct pooled *a = take_note(ptr), *gone;
	CUmemPool pool;
	uint64_t most;

	if (!a)
		return false;
	if (stream_capturing(stream)) {
		note(a);
		return true;
	}
	if ((!a->freed && real_cuEventCreate(&a->freed, CU_EVENT_NO_TIMING) != CUDA_SUCCESS) ||
	    real_cuEventRecord(a->freed, stream) != CUDA_SUCCESS) {
		real_cuCtxSynchronize();
		pthread_mutex_lock(&lock);
		a->pool->used -= a->size;
		pthread_mutex_unlock(&lock);
		a->next = NULL;
		let_go(a);
		return true;
	}
	pthread_mutex_lock(&lock);
	a->stream = stream;
	a->pool->used -= a->size;
	retain(a);
	pool = a->pool->key;
	most = a->pool->threshold > UINT64_MAX - SLACK ? UINT64_MAX : a->pool->threshold + SLACK;
	gone = a->pool->used + a->pool->retained > most ? take_unused(pool, most, false) : NULL;
	pthread_mutex_unlock(&lock);
	let_go(gone);
	return true;
}

bool pooled_free(CUdeviceptr ptr, CUstream stream)
{
	struct relaxed relaxed = capture_relax();
	bool freed = free_pooled(ptr, stream);

	capture_unrelax(relaxed);
	return freed;
}

bool pooled_owns(CUdeviceptr ptr)
{
	bool owns;

	ledger_lock();
	owns = ledger_find(ptr, HOLD_POOLED) != NULL;
	ledger_unlock();
	return owns;
}

void pooled_disown(CUdeviceptr ptr)
{
	struct pooled *a = take_note(ptr);

	if (!a)
		return;
	pthread_mutex_lock(&lock);
	a->pool->used -= a->size;
	pthread_mutex_unlock(&lock);
	forget(a);
}

/* ---- pools ---- */

void pooled_export(CUmemPool pool)
{
	pthread_mutex_lock(&lock);
	struct pool *p = pool_of(pool);
	if (p)
		p->exported = true;
	pthread_mutex_unlock(&lock);
}

bool pooled_exported(CUmemPool pool)
{
	pthread_mutex_lock(&lock);
	struct pool *p = pool_of(pool);
	bool exported = !p || p->exported;
	pthread_mutex_unlock(&lock);
	return exported;
}

bool pooled_get(CUmemPool pool, int attribute, uint64_t *value)
{
	struct pool *p;

	if (attribute < CU_MEMPOOL_RESERVED_CURRENT || attribute > CU_MEMPOOL_USED_HIGH || pooled_exported(pool))
		return false;
	pthread_mutex_lock(&lock);
	p = pool_of(pool);
	if (p)
		*value = attribute == CU_MEMPOOL_RESERVED_CURRENT ? p->used + p->retained : attribute == CU_MEMPOOL_RESERVED_HIGH ? p->reserved_high :
			attribute == CU_MEMPOOL_USED_CURRENT ? p->used : p->used_high;
	pthread_mutex_unlock(&lock);
	return p != NULL;
}

void pooled_set(CUmemPool pool, int attribute, uint64_t value)
{
	pthread_mutex_lock(&lock);
	struct pool *p = pool_of(pool);
	if (p && attribute == CU_MEMPOOL_THRESHOLD)
		p->threshold = value;
	if (p && attribute == CU_MEMPOOL_RESERVED_HIGH)
		p->reserved_high = p->used + p->retained;
	if (p && attribute == CU_MEMPOOL_USED_HIGH)
		p->used_high = p->used;
	pthread_mutex_unlock(&lock);
}

/* What the program still has of it stays until it is freed; the driver may give the next pool the same number. */
void pooled_destroy(CUmemPool pool)
{
	struct pool *p;

	pthread_mutex_lock(&lock);
	p = pool_of(pool);
	if (p) {
		p->key = NULL;
		p->threshold = 0;
	}
	pthread_mutex_unlock(&lock);
	pooled_trim_all(true);
}

void pooled_forget_stream(CUstream stream)
{
	pthread_mutex_lock(&lock);
	for (struct pooled *a = oldest; a; a = a->newer)
		if (a->stream == stream)
			a->stream = (CUstream)CU_STREAM_PER_THREAD;
	pthread_mutex_unlock(&lock);
}

struct of_context { CUcontext ctx; struct pooled *gone; };

static void collect(struct holding *h, void *arg)
{
	struct of_context *c = arg;
	struct pooled *a = h->own;

	if (h->kind != HOLD_POOLED || a->ctx != c->ctx)
		return;
	ledger_drop(h);
	a->next = c->gone;
	c->gone = a;
}

/* With its context its memory goes as any other of ours, and its events have gone with it already. */
void pooled_forget_context(CUcontext ctx)
{
	struct of_context c = {ctx, NULL};

	pthread_mutex_lock(&lock);
	ledger_lock();
	ledger_each(collect, &c);
	ledger_unlock();
	for (struct pooled *a = c.gone; a; a = a->next)
		a->pool->used -= a->size;
	for (struct pooled *a = oldest, *newer; a; a = newer) {
		newer = a->newer;
		if (a->ctx != ctx)
			continue;
		unretain(a);
		a->next = c.gone;
		c.gone = a;
	}
	for (struct pooled *a = c.gone, *next; a; a = next) {
		next = a->next;
		free(a);
	}
	pthread_mutex_unlock(&lock);
}

void pooled_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	for (int i = 0; i < BUCKETS; i++)
		buckets[i] = NULL;
	pools = NULL;
	oldest = newest = NULL;
}
