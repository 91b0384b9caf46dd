/* Stream-ordered pools and the memory of graphs: what counts is what the driver has reserved, used or not. */
#include <pthread.h>
#include "driver_symbols.h"
#include "memory_budget.h"
#include "pools.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a pool's charge and its reserve change in step */

static uint64_t pool_attribute(CUmemPool pool, int attribute)
{
	uint64_t n = 0;
	if (!real_cuMemPoolGetAttribute || real_cuMemPoolGetAttribute(pool, attribute, &n) != CUDA_SUCCESS)
		return 0;
	return n;
}

static uint64_t graph_reserved(struct device *d)
{
	uint64_t n = 0;
	if (!real_cuDeviceGetGraphMemAttribute ||
	    real_cuDeviceGetGraphMemAttribute(d->cu, CU_GRAPH_MEM_RESERVED_CURRENT, &n) != CUDA_SUCCESS)
		return 0;
	return n;
}

/* An entry of the ledger, made at need. Graphs' memory on a device is entered under the device's own address. */
static struct holding *entry_of(uint64_t key, enum holding_kind kind, struct device *d)
{
	struct holding *h;

	ledger_lock();
	h = ledger_find(key, kind);
	if (!h)
		h = ledger_add(key, kind, d, 0);
	ledger_unlock();
	return h;
}

static struct holding *entry(void *pool, struct device *d) { return entry_of((uint64_t)(uintptr_t)pool, HOLD_POOL, d); }

/* What instantiated graphs may need on a device, whether they run now or not. */
struct graph_sum { struct device *d; uint64_t bytes; };

static void add_exec(struct holding *h, void *arg)
{
	struct graph_sum *s = arg;
	if (h->kind == HOLD_EXEC && h->device == s->d)
		s->bytes += h->link;
}

static uint64_t graph_needs(struct device *d)
{
	struct graph_sum s = {d, 0};
	uint64_t reserved = graph_reserved(d);

	ledger_each(add_exec, &s);
	return s.bytes > reserved ? s.bytes : reserved;
}

/* Makes the charge equal to what is reserved; false if that does not fit into the limit. */
static bool settle(struct holding *h, uint64_t reserved, bool whatever)
{
	int process = atomic_load(&session.process);
	uint64_t limit = whatever ? UINT64_MAX : atomic_load(&h->device->limit);

	if (reserved < h->bytes)
		memory_refund(h->device, h->bytes - reserved);
	else if (reserved > h->bytes && !container_charge(session.container, process, h->device->index, reserved - h->bytes, limit))
		return false;
	h->bytes = reserved;
	return true;
}

struct refresh { struct device *d; bool trim; };

static void refresh_one(struct holding *h, void *arg)
{
	struct refresh *r = arg;
	void *key = (void *)(uintptr_t)h->key;

	if (h->kind != HOLD_POOL || h->device != r->d)
		return;
	if (key == (void *)r->d) {
		if (r->trim && real_cuDeviceGraphMemTrim)
			real_cuDeviceGraphMemTrim(r->d->cu);
		settle(h, graph_needs(r->d), true);
		return;
	}
	if (r->trim && real_cuMemPoolTrimTo)
		real_cuMemPoolTrimTo(key, 0);
	settle(h, pool_attribute(key, CU_MEMPOOL_RESERVED_CURRENT), true);
}

static void refresh_locked(struct device *d, bool trim)
{
	struct refresh r = {d, trim};
	ledger_lock();
	ledger_each(refresh_one, &r);
	ledger_unlock();
}

void pools_refresh(struct device *d, bool trim)
{
	pthread_mutex_lock(&lock);
	refresh_locked(d, trim);
	pthread_mutex_unlock(&lock);
}

void pools_trim(struct device *d) { pools_refresh(d, true); }

void pool_created(CUmemPool pool, struct device *d) { entry(pool, d); }

struct device *pool_device(CUmemPool pool, struct device *d)
{
	struct holding *h;

	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)pool, HOLD_POOL);
	if (h)
		d = h->device;
	ledger_unlock();
	return d;
}

static bool take_locked(struct holding *h, uint64_t bytes)
{
	struct device *d = h->device;
	CUmemPool pool = (CUmemPool)(uintptr_t)h->key;
	uint64_t reserved = pool_attribute(pool, CU_MEMPOOL_RESERVED_CURRENT);
	uint64_t used = pool_attribute(pool, CU_MEMPOOL_USED_CURRENT);
	uint64_t growth = used + bytes > reserved ? charged_size(used + bytes - reserved) : 0;
	int process = atomic_load(&session.process);

	settle(h, reserved, true);
	if (growth && !container_charge(session.container, process, d->index, growth, atomic_load(&d->limit))) {
		refresh_locked(d, true);
		if (!container_charge(session.container, process, d->index, growth, atomic_load(&d->limit)))
			return false;
	}
	h->bytes += growth;
	return true;
}

/* The driver grows a pool in steps of its own: what it took beyond the request must fit as well. */
static bool took_locked(struct holding *h, CUresult r, CUdeviceptr ptr, CUstream stream)
{
	CUmemPool pool = (CUmemPool)(uintptr_t)h->key;

	if (settle(h, pool_attribute(pool, CU_MEMPOOL_RESERVED_CURRENT), r != CUDA_SUCCESS))
		return true;
	refresh_locked(h->device, true);
	if (container_used(session.container, h->device->index) <= atomic_load(&h->device->limit))
		return true;
	if (real_cuMemFreeAsync && real_cuStreamSynchronize && real_cuMemFreeAsync(ptr, stream) == CUDA_SUCCESS)
		real_cuStreamSynchronize(stream);
	refresh_locked(h->device, true);
	return false;
}

struct holding *pool_take(CUmemPool pool, struct device *d, uint64_t bytes)
{
	struct holding *h;

	pthread_mutex_lock(&lock);
	h = entry(pool, d);
	if (!h || !take_locked(h, bytes))
		return NULL;
	atomic_fetch_add(&h->device->growing, 1);
	return h;
}

CUresult pool_took(struct holding *h, CUresult r, CUdeviceptr ptr, CUstream stream)
{
	if (!h || !took_locked(h, r, ptr, stream))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (h) {
		atomic_fetch_add(&h->device->changes, 1); /* before growing ends: whoever looks sees one of the two */
		atomic_fetch_sub(&h->device->growing, 1);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult pool_destroy(CUresult (*real)(CUmemPool), CUmemPool pool)
{
	struct holding *h;
	CUresult r;

	pthread_mutex_lock(&lock);
	r = real(pool);
	if (r == CUDA_SUCCESS) {
		ledger_lock();
		h = ledger_find((uint64_t)(uintptr_t)pool, HOLD_POOL);
		if (h)
			holding_give_back(h);
		ledger_unlock();
	}
	pthread_mutex_unlock(&lock);
	return r;
}

/* ---- graphs ---- */

/* A node's memory is taken when its graph is instantiated; until then it is noted. One that can never fit is refused. */
CUresult graph_note(void *graph, struct device *d, uint64_t bytes)
{
	struct holding *h;

	if (charged_size(bytes) > atomic_load(&d->limit) || !(h = entry_of((uint64_t)(uintptr_t)graph, HOLD_GRAPH, d)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ledger_lock();
	h->link += charged_size(bytes);
	ledger_unlock();
	return CUDA_SUCCESS;
}

void graph_captured(CUstream stream, CUgraph graph)
{
	struct holding *h, *g;

	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)stream, HOLD_GRAPH);
	g = h && graph ? ledger_add((uint64_t)(uintptr_t)graph, HOLD_GRAPH, h->device, 0) : NULL;
	if (g)
		g->link = h->link;
	if (h)
		ledger_drop(h);
	ledger_unlock();
}

struct holding *graph_noted(CUgraph graph)
{
	struct holding *h;
	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)graph, HOLD_GRAPH);
	ledger_unlock();
	return h;
}

CUresult graph_instantiated(CUgraphExec exec, struct holding *of, CUresult r)
{
	struct device *d = of->device;
	struct holding *x, *total;

	if (r != CUDA_SUCCESS) {
		memory_refund(d, of->link);
		return r;
	}
	pthread_mutex_lock(&lock);
	x = entry_of((uint64_t)(uintptr_t)exec, HOLD_EXEC, d);
	total = entry(d, d);
	if (x)
		x->link = of->link;
	if (total)
		total->bytes += of->link;
	refresh_locked(d, false);
	pthread_mutex_unlock(&lock);
	return r;
}

void graph_forget(CUgraph graph)
{
	struct holding *h;

	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)graph, HOLD_GRAPH);
	if (h)
		ledger_drop(h);
	ledger_unlock();
}

struct device *graph_exec_forget(CUgraphExec exec)
{
	struct holding *x;
	struct device *d = NULL;

	ledger_lock();
	x = ledger_find((uint64_t)(uintptr_t)exec, HOLD_EXEC);
	if (x) {
		d = x->device;
		ledger_drop(x);
	}
	ledger_unlock();
	return d;
}
