/*
 * Memory that can be moved, as chunks behind addresses. A chunk leaves the card by being unmapped and released; it comes
 * back as another piece of the card's memory, mapped at the same addresses.
 */
#include <pthread.h>
#include "blocks.h"
#include "compute_limit.h"
#include "copy_streams.h"
#include "driver_symbols.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the list, and the program's mappings */
struct block *blocks;
static _Atomic uint64_t out_bytes; /* on the host */

void blocks_lock(void) { pthread_mutex_lock(&lock); }
void blocks_unlock(void) { pthread_mutex_unlock(&lock); }

/* The parent's memory is not the child's. */
void blocks_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	blocks = NULL;
	atomic_store(&out_bytes, 0);
}

void block_link(struct block *b)
{
	b->next = blocks;
	b->link = &blocks;
	if (blocks)
		blocks->link = &b->next;
	blocks = b;
}

void block_unlink(struct block *b)
{
	*b->link = b->next;
	if (b->next)
		b->next->link = b->link;
}

static CUcontext context_of_another(const struct device *d)
{
	for (struct block *b = blocks; b; b = b->next)
		if (b->device == d && b->ctx)
			return b->ctx;
	return NULL;
}

/* Where the program has none any more, and memory is left that others have or that is of no context: the card's own. */
CUcontext block_context(const struct block *b)
{
	struct device *d = b->device;
	CUcontext ctx = b->ctx ? b->ctx : atomic_load(&d->primary);

	if (!ctx)
		ctx = context_of_another(d);
	if (!ctx && real_cuDevicePrimaryCtxRetain(&ctx, d->cu) == CUDA_SUCCESS)
		atomic_store(&d->primary, ctx);
	return ctx;
}

void blocks_forget_context(CUcontext ctx)
{
	blocks_lock();
	for (int i = 0; i < session.devices; i++)
		if (atomic_load(&session.device[i].primary) == ctx)
			atomic_store(&session.device[i].primary, NULL);
	for (struct block *b = blocks; b; b = b->next)
		if (b->ctx == ctx)
			b->ctx = NULL;
	blocks_unlock();
}

/* ---- chunks ---- */

uint64_t blocks_out(void) { return atomic_load(&out_bytes); }

static void count_out(const struct block *b, int64_t delta)
{
	atomic_fetch_add(&out_bytes, (uint64_t)delta);
	atomic_fetch_add(&session_row()->swapped[b->device->index], (uint64_t)delta);
}

/* The arbiter sees how much of ours could be moved off the card. */
static void count_resident(struct device *d, int64_t delta)
{
	struct memory_request *m = own_memory(d);
	if (m)
		atomic_fetch_add(&m->resident, (uint64_t)delta);
}

static CUresult map(CUdeviceptr at, uint64_t size, uint64_t offset, CUmemHandle handle, const CUmemAccess *access, size_t n)
{
	CUresult r = real_cuMemMap(at, size, offset, handle, 0);

	if (r == CUDA_SUCCESS && n) {
		r = real_cuMemSetAccess(at, size, access, n);
		if (r != CUDA_SUCCESS)
			real_cuMemUnmap(at, size);
	}
	return r;
}

/* What we map is for the card itself and those that reach it. */
static CUresult map_ours(struct block *b, struct chunk *c, CUdeviceptr at)
{
	CUmemAccess access[MAX_DEVICES] = {{b->prop.location, CU_MEM_ACCESS_READWRITE}};
	size_t n = 1;
	int can;

	for (int i = 0; i < session.devices; i++) {
		CUdevice peer = session.device[i].cu;
		if (peer != b->device->cu && real_cuDeviceCanAccessPeer && real_cuDeviceCanAccessPeer(&can, peer, b->device->cu) == CUDA_SUCCESS && can)
			access[n++] = (CUmemAccess){{CU_MEM_LOCATION_DEVICE, peer}, CU_MEM_ACCESS_READWRITE};
	}
	return map(at, c->size, 0, c->handle, access, n);
}

static CUresult map_again(struct mapping *m, CUmemHandle handle)
{
	CUmemAccess access[MAX_DEVICES];
	size_t n = 0;

	for (int i = 0; i < session.devices; i++)
		if (m->access[i])
			access[n++] = (CUmemAccess){{CU_MEM_LOCATION_DEVICE, session.device[i].cu}, m->access[i]};
	return map(m->at, m->size, m->offset, handle, access, n);
}

static void unmap_until(struct block *b, const struct mapping *end)
{
	for (struct mapping *m = b->maps; m != end; m = m->next)
		real_cuMemUnmap(m->at, m->size);
}

static CUresult map_program(struct block *b, struct chunk *c)
{
	CUresult r = CUDA_SUCCESS;

	for (struct mapping *m = b->maps; m && r == CUDA_SUCCESS; m = m->next) {
		r = map_again(m, c->handle);
		if (r != CUDA_SUCCESS)
			unmap_until(b, m);
	}
	return r;
}

/* ---- memory behind arrays ---- */

/* It is there, or gone, when this returns; the stream has no other work. */
static CUresult array_operate(const struct array *a, int operation, CUmemHandle handle)
{
	CUcontext before = NULL;
	CUstream stream;
	CUarrayMap m = {
		.resource_type = a->mipmapped ? CU_RESOURCE_MIPMAPPED : CU_RESOURCE_ARRAY, .resource = a->handle,
		.operation = operation, .handle = handle, .offset = handle ? a->at : 0, .device_mask = 1u << a->block->device->cu,
	};
	CUresult r;

	real_cuCtxGetCurrent(&before);
	stream = map_stream(block_context(a->block));
	r = real_cuMemMapArrayAsync(&m, 1, stream);
	if (r == CUDA_SUCCESS)
		r = real_cuStreamSynchronize(stream);
	real_cuCtxSetCurrent(before);
	return r;
}

CUresult array_map(const struct array *a, const struct chunk *c) { return array_operate(a, CU_ARRAY_MAP, c->handle); }
void array_unmap(const struct array *a) { array_operate(a, CU_ARRAY_UNMAP, 0); }

static void unmap_arrays_until(struct block *b, const struct array *end)
{
	for (struct array *a = b->arrays; a != end; a = a->next)
		array_unmap(a);
}

static CUresult map_arrays(struct block *b, struct chunk *c)
{
	CUresult r = CUDA_SUCCESS;

	for (struct array *a = b->arrays; a && r == CUDA_SUCCESS; a = a->next) {
		r = array_map(a, c);
		if (r != CUDA_SUCCESS)
			unmap_arrays_until(b, a);
	}
	return r;
}

bool chunk_put(struct block *b, struct chunk *c, CUdeviceptr at, CUmemHandle handle, CUresult *r)
{
	c->handle = handle;
	*r = b->tiles ? map_arrays(b, c) : b->program ? map_program(b, c) : map_ours(b, c, at);
	if (*r != CUDA_SUCCESS) {
		real_cuMemRelease(handle);
		c->handle = 0;
		return false;
	}
	if (!b->import)
		count_resident(b->device, (int64_t)c->size);
	return true;
}

bool chunk_make(struct block *b, struct chunk *c, CUdeviceptr at, CUresult *r)
{
	CUmemHandle handle;

	*r = real_cuMemCreate(&handle, c->size, &b->prop, 0);
	return *r == CUDA_SUCCESS && chunk_put(b, c, at, handle, r);
}

void chunk_leave(struct block *b, struct chunk *c, CUdeviceptr at)
{
	chunk_free(b, c, at);
	count_out(b, (int64_t)c->size);
}

void chunk_back(struct block *b, struct chunk *c)
{
	c->out = false;
	block_close(b);
	count_out(b, -(int64_t)c->size);
}

void chunk_free(struct block *b, struct chunk *c, CUdeviceptr at)
{
	if (!c->handle) { /* on the host; or of another process, and lost with it */
		if (c->out)
			count_out(b, -(int64_t)c->size);
		c->out = false;
		return;
	}
	block_close(b);
	if (b->tiles)
		unmap_arrays_until(b, NULL);
	else if (b->program)
		unmap_until(b, NULL);
	else
		real_cuMemUnmap(at, c->size);
	real_cuMemRelease(c->handle);
	c->handle = 0;
	if (!b->import)
		count_resident(b->device, -(int64_t)c->size);
}

/* ---- copies of what the program maps ---- */

static void note_access(struct mapping *m)
{
	for (int i = 0; i < session.devices; i++) {
		CUmemLocation location = {CU_MEM_LOCATION_DEVICE, session.device[i].cu};
		unsigned long long flags = 0;
		if (real_cuMemGetAccess(&flags, &location, m->at) == CUDA_SUCCESS)
			m->access[i] = (unsigned char)flags;
		else
			m->access[i] = 0;
	}
}

void block_note_access(struct block *b)
{
	for (struct mapping *m = b->maps; m; m = m->next)
		note_access(m);
}

/* A copy goes by an address: the program's, where it can use all of the memory there, or one of our own. */
CUresult block_open(struct block *b)
{
	CUresult r;

	if (!b->program || b->base)
		return CUDA_SUCCESS;
	block_note_access(b);
	for (struct mapping *m = b->maps; m; m = m->next) {
		if (!b->base && !m->offset && m->size == b->size && m->access[b->device - session.device] == CU_MEM_ACCESS_READWRITE)
			b->base = m->at;
	}
	if (b->base)
		return CUDA_SUCCESS;
	r = real_cuMemAddressReserve(&b->base, b->size, 0, 0, 0);
	if (r == CUDA_SUCCESS) {
		r = map_ours(b, b->chunk, b->base);
		if (r != CUDA_SUCCESS)
			real_cuMemAddressFree(b->base, b->size);
	}
	if (r != CUDA_SUCCESS)
		b->base = 0;
	b->window = r == CUDA_SUCCESS;
	return r;
}

void block_close(struct block *b)
{
	if (!b->program)
		return;
	if (b->window) {
		real_cuMemUnmap(b->base, b->size);
		real_cuMemAddressFree(b->base, b->size);
	}
	b->window = false;
	b->base = 0;
}
