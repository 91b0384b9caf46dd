/* Stream-ordered pools and the memory of graphs: what counts is what the driver has reserved, used or not. */
#include <pthread.h>
#include "elastic.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* keeps a pool's charge and its reserve in step */

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

/* An entry of the ledger, made at need. Graphs' memory on a device is kept under the device's own address. */
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

/* Makes the charge equal to what is reserved; false if that is more than there is room for. */
static bool settle(struct holding *h, uint64_t reserved, bool whatever)
{
	int process = atomic_load(&session.process);
	uint64_t limit = whatever ? UINT64_MAX : atomic_load(&h->device->limit);

	if (reserved < h->bytes)
		refund(h->device, h->bytes - reserved);
	else if (reserved > h->bytes && !region_charge(session.region, process, h->device->index, reserved - h->bytes, limit))
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

static bool take_locked(struct holding *h, uint64_t bytes)
{
	struct device *d = h->device;
	CUmemPool pool = (CUmemPool)(uintptr_t)h->key;
	uint64_t reserved = pool_attribute(pool, CU_MEMPOOL_RESERVED_CURRENT);
	uint64_t used = pool_attribute(pool, CU_MEMPOOL_USED_CURRENT);
	uint64_t growth = used + bytes > reserved ? charged_size(used + bytes - reserved) : 0;
	int process = atomic_load(&session.process);

	settle(h, reserved, true);
	if (growth && !region_charge(session.region, process, d->index, growth, atomic_load(&d->limit))) {
		refresh_locked(d, true);
		if (!region_charge(session.region, process, d->index, growth, atomic_load(&d->limit)))
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
	if (region_used(session.region, h->device->index) <= atomic_load(&h->device->limit))
		return true;
	if (real_cuMemFreeAsync && real_cuStreamSynchronize && real_cuMemFreeAsync(ptr, stream) == CUDA_SUCCESS)
		real_cuStreamSynchronize(stream);
	refresh_locked(h->device, true);
	return false;
}

/* A node's memory is taken when its graph is instantiated; until then it is noted. One that can never fit is refused. */
static CUresult note_node(uint64_t graph, struct device *d, uint64_t bytes)
{
	struct holding *h;

	if (charged_size(bytes) > atomic_load(&d->limit) || !(h = entry_of(graph, HOLD_GRAPH, d)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ledger_lock();
	h->link += charged_size(bytes);
	ledger_unlock();
	return CUDA_SUCCESS;
}

#define NOTE_NODE(graph, d, bytes, call) do { \
	CUresult r_ = note_node((uint64_t)(uintptr_t)(graph), d, bytes); \
	return r_ == CUDA_SUCCESS ? (call) : r_; \
} while (0)

/* What was noted for a stream while it was captured goes to the graph that came of it. */
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

CUresult on_cuGraphDestroy(fn_cuGraphDestroy real, CUgraph graph)
{
	struct holding *h;

	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)graph, HOLD_GRAPH);
	if (h)
		ledger_drop(h);
	ledger_unlock();
	return real(graph);
}

static struct holding *noted(CUgraph graph)
{
	struct holding *h;
	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)graph, HOLD_GRAPH);
	ledger_unlock();
	return h;
}

static CUresult instantiated(CUgraphExec exec, struct holding *of, CUresult r)
{
	struct device *d = of->device;
	struct holding *x, *total;

	if (r != CUDA_SUCCESS) {
		refund(d, of->link);
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

#define INSTANTIATE(exec, graph, call) do { \
	struct holding *of_ = noted(graph); \
	if (!of_ || !of_->link) \
		return (call); \
	if (!charge(of_->device, of_->link)) \
		return CUDA_ERROR_OUT_OF_MEMORY; \
	return instantiated(*(exec), of_, (call)); \
} while (0)

CUresult on_cuGraphInstantiate(fn_cuGraphInstantiate_v2 real, CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size)
{
	INSTANTIATE(exec, graph, real(exec, graph, node, log, size));
}

CUresult on_cuGraphInstantiateWithFlags(fn_cuGraphInstantiateWithFlags real, CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	INSTANTIATE(exec, graph, real(exec, graph, flags));
}

CUresult on_cuGraphInstantiateWithParams(fn_cuGraphInstantiateWithParams real, CUgraphExec *exec, CUgraph graph, void *params)
{
	INSTANTIATE(exec, graph, real(exec, graph, params));
}

#define TAKE_FROM_POOL(d, pool, bytes, stream, call) do { \
	struct holding *h_; \
	CUresult r_ = CUDA_ERROR_OUT_OF_MEMORY; \
	int pass_ = moving_enter(); \
	pthread_mutex_lock(&lock); \
	h_ = entry(pool, d); \
	if (h_ && take_locked(h_, bytes)) { \
		r_ = (call); \
		if (!took_locked(h_, r_, *ptr, stream)) \
			r_ = CUDA_ERROR_OUT_OF_MEMORY; \
	} \
	pthread_mutex_unlock(&lock); \
	moving_leave(pass_); \
	return r_; \
} while (0)

CUresult on_cuMemAllocAsync(fn_cuMemAllocAsync real, CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	struct device *d = session_start() ? device_current() : NULL;
	CUmemPool pool;

	if (!d || !ptr || !real_cuDeviceGetMemPool || real_cuDeviceGetMemPool(&pool, d->cu) != CUDA_SUCCESS)
		return real(ptr, bytes, stream);
	if (stream_capturing(stream)) /* becomes a node of the graph */
		NOTE_NODE(stream, d, bytes, real(ptr, bytes, stream));
	TAKE_FROM_POOL(d, pool, bytes, stream, real(ptr, bytes, stream));
}

CUresult on_cuMemAllocFromPoolAsync(fn_cuMemAllocFromPoolAsync real, CUdeviceptr *ptr, size_t bytes, CUmemPool pool, CUstream stream)
{
	struct device *d = session_start() ? device_current() : NULL;
	struct holding *h;

	if (!d || !ptr || !pool)
		return real(ptr, bytes, pool, stream);
	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)pool, HOLD_POOL); /* a pool may be of another device than the current one */
	if (h)
		d = h->device;
	ledger_unlock();
	if (stream_capturing(stream)) /* becomes a node of the graph */
		NOTE_NODE(stream, d, bytes, real(ptr, bytes, pool, stream));
	TAKE_FROM_POOL(d, pool, bytes, stream, real(ptr, bytes, pool, stream));
}

CUresult on_cuMemFreeAsync(fn_cuMemFreeAsync real, CUdeviceptr ptr, CUstream stream)
{
	MOVING(real(ptr, stream));
}

CUresult on_cuMemPoolCreate(fn_cuMemPoolCreate real, CUmemPool *pool, const CUmemPoolProps *props)
{
	CUresult r = real(pool, props);

	if (r == CUDA_SUCCESS && session_start() && props->location.type == CU_MEM_LOCATION_DEVICE && device_of(props->location.id))
		entry(*pool, device_of(props->location.id));
	return r;
}

CUresult on_cuMemPoolDestroy(fn_cuMemPoolDestroy real, CUmemPool pool)
{
	struct holding *h;
	CUresult r;

	pthread_mutex_lock(&lock);
	r = real(pool);
	if (r == CUDA_SUCCESS) {
		ledger_lock();
		h = ledger_find((uint64_t)(uintptr_t)pool, HOLD_POOL);
		if (h)
			give_back(h);
		ledger_unlock();
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult on_cuMemPoolTrimTo(fn_cuMemPoolTrimTo real, CUmemPool pool, size_t keep)
{
	CUresult r = real(pool, keep);
	struct device *d = r == CUDA_SUCCESS && session_start() ? device_current() : NULL;

	if (d)
		pools_refresh(d, false);
	return r;
}

CUresult on_cuMemPoolImportFromShareableHandle(fn_cuMemPoolImportFromShareableHandle real, CUmemPool *pool, void *handle, int type, uint64_t flags)
{
	CUresult r = real(pool, handle, type, flags);
	if (r == CUDA_SUCCESS)
		swap_pin("pool-import");
	return r;
}

CUresult on_cuGraphAddMemAllocNode(fn_cuGraphAddMemAllocNode real, CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUmemAllocNode *params)
{
	struct device *d = params && session_start() ? device_of(params->pool.location.id) : NULL;

	if (!d)
		return real(node, graph, deps, count, params);
	NOTE_NODE(graph, d, params->bytes, real(node, graph, deps, count, params));
}

static struct device *node_device(const CUgraphNodeParams *p)
{
	return p && p->type == CU_GRAPH_NODE_MEM_ALLOC && session_start() ? device_of(p->alloc.pool.location.id) : NULL;
}

CUresult on_cuGraphAddNode(fn_cuGraphAddNode real, CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUgraphNodeParams *params)
{
	struct device *d = node_device(params);

	if (!d)
		return real(node, graph, deps, count, params);
	NOTE_NODE(graph, d, params->alloc.bytes, real(node, graph, deps, count, params));
}

CUresult on_cuGraphAddNode_v2(fn_cuGraphAddNode_v2 real, CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, const void *edges, size_t count, CUgraphNodeParams *params)
{
	struct device *d = node_device(params);

	if (!d)
		return real(node, graph, deps, edges, count, params);
	NOTE_NODE(graph, d, params->alloc.bytes, real(node, graph, deps, edges, count, params));
}

CUresult on_cuGraphExecDestroy(fn_cuGraphExecDestroy real, CUgraphExec exec)
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
	CUresult r = real(exec);
	if (d)
		pools_refresh(d, false);
	return r;
}

CUresult on_cuDeviceGraphMemTrim(fn_cuDeviceGraphMemTrim real, CUdevice dev)
{
	CUresult r = real(dev);
	struct device *d = r == CUDA_SUCCESS && session_start() ? device_of(dev) : NULL;

	if (d)
		pools_refresh(d, false);
	return r;
}
