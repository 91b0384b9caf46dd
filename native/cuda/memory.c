/* Memory taken by plain allocations, arrays and handles from elsewhere. */
#include <string.h>
#include "elastic.h"

#define UP(n, to) (((n) + (to) - 1) / (to) * (to))

bool charge(struct device *d, uint64_t bytes)
{
	int process = atomic_load(&session.process);

	session_reload(false);
	atomic_fetch_add(&d->changes, 1);
	if (region_charge(session.region, process, d->index, bytes, atomic_load(&d->limit)))
		return true;
	pools_refresh(d, true); /* what pools keep unused counts, and can be let go */
	return region_charge(session.region, process, d->index, bytes, atomic_load(&d->limit));
}

void refund(struct device *d, uint64_t bytes)
{
	atomic_fetch_add(&d->changes, 1);
	region_refund(session.region, atomic_load(&session.process), d->index, bytes);
}

/* What the driver takes for a request: big ones come in pages of 2 MiB. */
uint64_t charged_size(uint64_t bytes)
{
	if (bytes > (uint64_t)1 << 60)
		return bytes; /* no rounding past the end of numbers: no limit is that large */
	return bytes > MiB ? UP(bytes, 2 * MiB) : UP(bytes, 512);
}

void give_back(struct holding *h)
{
	refund(h->device, h->bytes);
	ledger_drop(h);
}

static struct device *ready(void)
{
	return session_start() ? device_current() : NULL;
}

/* Writes down what was just allocated; its charge is already in the region. */
static void note(uint64_t key, enum holding_kind kind, struct device *d, uint64_t bytes)
{
	if (kind == HOLD_MANAGED)
		atomic_fetch_add(&d->managed, 1);
	ledger_lock();
	ledger_add(key, kind, d, bytes);
	ledger_unlock();
}

/*
 * Frees what is held under a key: out of the ledger first, for the driver may give the same address to another thread
 * as soon as it is free. False if nothing was held.
 */
#define DROP(key, kind, call, result) drop_begin(key, kind, &held_) ? (result = (call), drop_end(&held_, result), true) : false

static bool drop_begin(uint64_t key, enum holding_kind kind, struct holding *held)
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

static void drop_end(struct holding *held, CUresult r)
{
	if (r == CUDA_SUCCESS) {
		if (held->kind == HOLD_MANAGED)
			atomic_fetch_sub(&held->device->managed, 1);
		refund(held->device, held->bytes);
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

/* Charge, call, and write down or give back: the shape of every allocation. */
#define TAKE(key, kind, size, call) do { \
	struct device *d_ = ready(); \
	uint64_t size_ = (size); \
	CUresult r_; \
	if (!d_) \
		return (call); \
	int pass_ = moving_enter(); \
	if (!charge(d_, size_)) { \
		moving_leave(pass_); \
		return CUDA_ERROR_OUT_OF_MEMORY; \
	} \
	r_ = (call); \
	if (r_ == CUDA_SUCCESS) \
		note((uint64_t)(uintptr_t)(key), kind, d_, size_); \
	else \
		refund(d_, size_); \
	moving_leave(pass_); \
	return r_; \
} while (0)

static CUresult take_movable(CUdeviceptr *ptr, uint64_t bytes)
{
	struct device *d = ready();
	bool card_full;
	int alone = 0;
	CUresult r;

	/* On a card lent to more memory than it has, a neighbour moves out; meanwhile we may be moved ourselves. */
	for (;;) {
		int pass_ = moving_enter();
		r = swap_alloc(d, ptr, bytes, &card_full);
		moving_leave(pass_);
		if (!card_full || !atomic_load(&session.oversubscribe))
			break;
		alone = residency_ask(d, bytes) ? 0 : alone + 1;
		if (alone > 50)
			break; /* nobody has anything that could move: the card is really full */
		sleep_ns(10 * MS);
	}
	residency_fed(d);
	return r;
}

CUresult on_cuMemAlloc(fn_cuMemAlloc_v2 real, CUdeviceptr *ptr, size_t bytes)
{
	if (ready() && atomic_load(&session.swap) && ptr && bytes)
		return take_movable(ptr, bytes);
	TAKE(*ptr, HOLD_PTR, charged_size(bytes), real(ptr, bytes));
}

CUresult on_cuMemAllocPitch(fn_cuMemAllocPitch_v2 real, CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
	/* The driver chooses the pitch; on every card so far it is a multiple of 512. */
	uint64_t bytes;
	if (width > SIZE_MAX - 512 || __builtin_mul_overflow((uint64_t)UP(width, 512), (uint64_t)height, &bytes))
		bytes = UINT64_MAX;
	if (ready() && atomic_load(&session.swap) && ptr && pitch && width && height) {
		*pitch = UP(width, 512);
		return take_movable(ptr, bytes);
	}
	TAKE(*ptr, HOLD_PTR, charged_size(bytes), real(ptr, pitch, width, height, element));
}

CUresult on_cuMemAllocManaged(fn_cuMemAllocManaged real, CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
	TAKE(*ptr, HOLD_MANAGED, charged_size(bytes), real(ptr, bytes, flags));
}

CUresult on_cuMemFree(fn_cuMemFree_v2 real, CUdeviceptr ptr)
{
	struct holding *own, held_;
	CUresult r = CUDA_SUCCESS;

	int pass_ = moving_enter();
	ledger_lock();
	own = ledger_find(ptr, HOLD_OWN);
	ledger_unlock();
	if (own) {
		swap_free(own);
		moving_leave(pass_);
		return CUDA_SUCCESS;
	}
	if (!(DROP(ptr, HOLD_PTR, real(ptr), r)) && !(DROP(ptr, HOLD_MANAGED, real(ptr), r)) && !(DROP(ptr, HOLD_IPC, real(ptr), r))) {
		struct device *d = ptr ? ready() : NULL;
		r = real(ptr);
		if (d && r == CUDA_SUCCESS)
			pools_refresh(d, false); /* memory of a pool may be freed this way too */
	}
	moving_leave(pass_);
	return r;
}

CUresult on_cuMemGetAddressRange(fn_cuMemGetAddressRange_v2 real, CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
	return swap_owns(ptr, base, size) ? CUDA_SUCCESS : real(base, size, ptr);
}

static uint64_t array_bytes(size_t width, size_t height, size_t depth, int format, unsigned channels)
{
	unsigned element = format == 0x01 || format == 0x08 ? 1 : format == 0x02 || format == 0x09 || format == 0x10 ? 2 : 4;

	return UP((uint64_t)width * (height ? height : 1) * (depth ? depth : 1) * element * (channels ? channels : 1), 64 * 1024);
}

CUresult on_cuArrayCreate(fn_cuArrayCreate_v2 real, CUarray *array, const CUarrayDesc *desc)
{
	if (!desc)
		return real(array, desc);
	TAKE(*array, HOLD_ARRAY, array_bytes(desc->width, desc->height, 1, desc->format, desc->channels), real(array, desc));
}

#define ARRAY_WITHOUT_MEMORY 0xC0 /* sparse, deferred: backed later, by cuMemCreate */

static uint64_t levels_bytes(const CUarray3DDesc *d, unsigned levels)
{
	uint64_t sum = 0;

	if (d->flags & ARRAY_WITHOUT_MEMORY)
		return 0;
	for (unsigned i = 0; i < levels; i++)
		sum += array_bytes(d->width >> i ? d->width >> i : 1, d->height >> i, d->depth >> i, d->format, d->channels);
	return sum;
}

CUresult on_cuArray3DCreate(fn_cuArray3DCreate_v2 real, CUarray *array, const CUarray3DDesc *desc)
{
	if (!desc)
		return real(array, desc);
	TAKE(*array, HOLD_ARRAY, levels_bytes(desc, 1), real(array, desc));
}

CUresult on_cuMipmappedArrayCreate(fn_cuMipmappedArrayCreate real, CUmipmappedArray *array, const CUarray3DDesc *desc, unsigned levels)
{
	if (!desc || levels > 64)
		return real(array, desc, levels);
	TAKE(*array, HOLD_ARRAY, levels_bytes(desc, levels ? levels : 1), real(array, desc, levels));
}

CUresult on_cuArrayDestroy(fn_cuArrayDestroy real, CUarray array)
{
	struct holding held_;
	CUresult r;

	if (!(DROP((uint64_t)(uintptr_t)array, HOLD_ARRAY, real(array), r)))
		r = real(array);
	return r;
}

CUresult on_cuMipmappedArrayDestroy(fn_cuMipmappedArrayDestroy real, CUmipmappedArray array)
{
	return on_cuArrayDestroy(real, array);
}

static uint64_t handle_key(const CUipcMemHandle *h)
{
	uint64_t k = 0xcbf29ce484222325;
	for (size_t i = 0; i < sizeof h->reserved; i++)
		k = (k ^ (unsigned char)h->reserved[i]) * 0x100000001b3;
	return k ? k : 1;
}

CUresult on_cuIpcGetMemHandle(fn_cuIpcGetMemHandle real, CUipcMemHandle *handle, CUdeviceptr ptr)
{
	CUresult r;

	if (swap_owns(ptr, NULL, NULL))
		return CUDA_ERROR_NOT_SUPPORTED; /* memory that may leave the card has no handle others could keep */
	r = real(handle, ptr);
	if (r == CUDA_SUCCESS && session_start()) {
		swap_pin("ipc-export");
		region_export(session.region, handle_key(handle), atomic_load(&session.process));
	}
	return r;
}

/* Memory of another process: charged here, unless a living process of this container pays for it already. */
static CUresult take_import(CUdeviceptr ptr, uint64_t key)
{
	struct device *d = ready();
	CUdeviceptr base;
	size_t size = 0;
	bool paid;

	if (!d || !real_cuMemGetAddressRange_v2 || real_cuMemGetAddressRange_v2(&base, &size, ptr) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	paid = key && region_exported(session.region, key);
	if (!paid && !charge(d, charged_size(size)))
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
	if (h->kind != HOLD_IPC || !h->link || region_exported(session.region, h->link))
		return;
	/* Its owner died and we keep it alive: it counts here now, room or not. */
	h->bytes = (uint64_t)(uintptr_t)h->own;
	h->link = 0;
	h->own = NULL;
	region_charge(session.region, atomic_load(&session.process), h->device->index, h->bytes, UINT64_MAX);
}

void ipc_refresh(void)
{
	ledger_lock();
	ledger_each(charge_orphan, NULL);
	ledger_unlock();
}

CUresult on_cuIpcOpenMemHandle(fn_cuIpcOpenMemHandle real, CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
	CUresult r = real(ptr, handle, flags);

	if (r != CUDA_SUCCESS)
		return r;
	swap_pin("ipc-import");
	r = take_import(*ptr, handle_key(&handle));
	if (r != CUDA_SUCCESS)
		real_cuIpcCloseMemHandle(*ptr);
	return r;
}

CUresult on_cuIpcCloseMemHandle(fn_cuIpcCloseMemHandle real, CUdeviceptr ptr)
{
	struct holding held_;
	CUresult r;

	if (!(DROP(ptr, HOLD_IPC, real(ptr), r)))
		r = real(ptr);
	return r;
}

CUresult on_cuMemPoolImportPointer(fn_cuMemPoolImportPointer real, CUdeviceptr *ptr, CUmemPool pool, CUmemPoolPtrExportData *data)
{
	CUresult r = real(ptr, pool, data);

	if (r != CUDA_SUCCESS)
		return r;
	swap_pin("pool-import");
	r = take_import(*ptr, 0);
	if (r != CUDA_SUCCESS)
		real_cuMemFree_v2(*ptr);
	return r;
}

CUresult on_cuImportExternalMemory(fn_cuImportExternalMemory real, CUexternalMemory *mem, const CUexternalMemoryDesc *desc)
{
	if (!desc)
		return real(mem, desc);
	swap_pin("external-memory");
	TAKE(*mem, HOLD_EXTERNAL, charged_size(desc->size), real(mem, desc));
}

CUresult on_cuDestroyExternalMemory(fn_cuDestroyExternalMemory real, CUexternalMemory mem)
{
	struct holding held_;
	CUresult r;

	if (!(DROP((uint64_t)(uintptr_t)mem, HOLD_EXTERNAL, real(mem), r)))
		r = real(mem);
	return r;
}

/* What the container sees of its card: its limit, and what is left of it. */
static void shown(struct device *d, size_t real_free, size_t *free, size_t *total)
{
	uint64_t limit, used;

	session_reload(false);
	limit = atomic_load(&d->limit);
	used = region_used(session.region, d->index);
	*total = limit;
	*free = used < limit ? limit - used : 0;
	if (!atomic_load(&session.oversubscribe) && *free > real_free)
		*free = real_free;
}

CUresult on_cuMemGetInfo(fn_cuMemGetInfo_v2 real, size_t *free, size_t *total)
{
	size_t real_free, real_total;
	CUresult r = real(&real_free, &real_total);
	struct device *d = r == CUDA_SUCCESS ? ready() : NULL;

	if (!d || !free || !total)
		return r;
	shown(d, real_free, free, total);
	if (*total > real_total && !atomic_load(&session.oversubscribe))
		*total = real_total;
	return r;
}

CUresult on_cuDeviceTotalMem(fn_cuDeviceTotalMem_v2 real, size_t *bytes, CUdevice dev)
{
	CUresult r = real(bytes, dev);
	struct device *d = r == CUDA_SUCCESS && session_start() ? device_of(dev) : NULL;

	if (d && (atomic_load(&session.oversubscribe) || atomic_load(&d->limit) < *bytes))
		*bytes = atomic_load(&d->limit);
	return r;
}

static unsigned in_32_bits(size_t n) { return n > UINT32_MAX ? UINT32_MAX : (unsigned)n; }

CUresult on_cuMemGetInfo_v1(fn_cuMemGetInfo real, unsigned *free, unsigned *total)
{
	size_t f = 0, t = 0;
	CUresult r = real_cuMemGetInfo_v2 ? on_cuMemGetInfo(real_cuMemGetInfo_v2, &f, &t) : CUDA_ERROR_NOT_FOUND;
	(void)real;
	*free = in_32_bits(f);
	*total = in_32_bits(t);
	return r;
}

CUresult on_cuDeviceTotalMem_v1(fn_cuDeviceTotalMem real, unsigned *bytes, CUdevice dev)
{
	size_t b = 0;
	CUresult r = real_cuDeviceTotalMem_v2 ? on_cuDeviceTotalMem(real_cuDeviceTotalMem_v2, &b, dev) : CUDA_ERROR_NOT_FOUND;
	(void)real;
	*bytes = in_32_bits(b);
	return r;
}
