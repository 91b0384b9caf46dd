/* The memory of the tests' driver: really there, so that what a swap brings back can be compared. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define UP(n, to) (((n) + (to) - 1) / (to) * (to))
#define STUB_PAGE ((uint64_t)2 << 20)
#define POOL_STEP ((uint64_t)32 << 20)

enum object_kind { IS_PTR, IS_ASYNC, IS_ARRAY, IS_VMM, IS_MAP, IS_POOL, IS_IPC, IS_EXTERNAL };
struct object {
	enum object_kind kind;
	uint64_t key, bytes, charged;
	int dev, fd, refs;
	struct context *ctx;
	struct object *link, *next;
	uint64_t used, reserved; /* of a pool */
	unsigned char access[4]; /* of a mapping */
	int tiles;               /* memory for arrays, which has no addresses */
	int shareable;           /* memory that can be given away as a descriptor */
	uint64_t id;             /* of memory: its file */
	struct stub_array *array;
};

static pthread_mutex_t objects_lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static struct object default_pools[4] = {{.kind = IS_POOL, .dev = 0}, {.kind = IS_POOL, .dev = 1}, {.kind = IS_POOL, .dev = 2}, {.kind = IS_POOL, .dev = 3}};
static uint64_t graph_reserved[4];

#define LOCKED(body) do { pthread_mutex_lock(&objects_lock); body; pthread_mutex_unlock(&objects_lock); } while (0)

static int my_row(void)
{
	static _Atomic int row = -1;
	static _Atomic pid_t of;
	struct stub_card *c = stub_card();

	if (atomic_load(&row) >= 0 && atomic_load(&of) == getpid())
		return atomic_load(&row);
	for (int i = 0; i < STUB_PROCESSES; i++) {
		uint64_t was = atomic_load(&c->pid[i]);
		if (was && was != (uint64_t)getpid() && (kill((pid_t)was, 0) == 0 || errno != ESRCH))
			continue; /* its own: of the program that it was before */
		if (!atomic_compare_exchange_strong(&c->pid[i], &was, (uint64_t)getpid()))
			continue;
		for (int d = 0; d < 4; d++)
			atomic_store(&c->used[i][d], 0);
		stub_memory_forget();
		atomic_store(&c->mps[i], mps);
		atomic_store(&of, getpid());
		atomic_store(&row, i);
		return i;
	}
	abort();
}

static int stub_take(int dev, uint64_t bytes)
{
	_Atomic uint64_t *mine = &stub_card()->used[my_row()][dev];
	atomic_fetch_add(mine, bytes);
	if (stub_card_used(dev) <= stub_card_size())
		return 1;
	atomic_fetch_sub(mine, bytes);
	return 0;
}

static void stub_give(int dev, uint64_t bytes)
{
	atomic_fetch_sub(&stub_card()->used[my_row()][dev], bytes);
}

static uint64_t physical(uint64_t bytes) { return bytes > ((uint64_t)1 << 20) ? UP(bytes, STUB_PAGE) : UP(bytes, 512); }

static void *host(uint64_t bytes, int fd, int prot)
{
	void *p = mmap(NULL, UP(bytes, 4096) + STUB_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *at;
	if (p == MAP_FAILED)
		return NULL;
	at = (void *)UP((uintptr_t)p, STUB_PAGE);
	if (prot && mmap(at, UP(bytes, 4096), prot, fd >= 0 ? MAP_SHARED | MAP_FIXED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, fd, 0) == MAP_FAILED)
		return NULL;
	return at;
}

static struct object *object_add(enum object_kind kind, uint64_t key, int dev, uint64_t bytes, uint64_t charged)
{
	struct object *o = calloc(1, sizeof *o);
	*o = (struct object){.kind = kind, .key = key, .dev = dev, .bytes = bytes, .charged = charged, .fd = -1, .refs = 1, .ctx = stub_current()};
	LOCKED(o->next = objects; objects = o);
	return o;
}

static struct object *object_find(enum object_kind kind, uint64_t key)
{
	struct object *found = NULL;
	LOCKED(for (struct object *o = objects; o && !found; o = o->next) if (o->kind == kind && o->key == key) found = o);
	return found;
}

static void object_drop(struct object *gone)
{
	LOCKED(for (struct object **p = &objects; *p; p = &(*p)->next) if (*p == gone) { *p = gone->next; break; });
	if (gone->charged)
		stub_give(gone->dev, gone->charged);
	if (gone->fd >= 0)
		close(gone->fd);
	free(gone);
}

static void stub_array_gone(struct object *o);
static void stub_free_context(struct context *c)
{
	for (;;) {
		struct object *gone = NULL;
		LOCKED(for (struct object *o = objects; o && !gone; o = o->next) if (o->ctx == c && (o->kind == IS_PTR || o->kind == IS_ARRAY)) gone = o);
		if (!gone)
			return;
		if (gone->kind == IS_ARRAY)
			stub_array_gone(gone);
		object_drop(gone);
	}
}

static int stub_graph_reserve(int dev, uint64_t bytes)
{
	if (bytes <= graph_reserved[dev])
		return 1;
	if (!stub_take(dev, bytes - graph_reserved[dev]))
		return 0;
	graph_reserved[dev] = bytes;
	return 1;
}

#define NEED_CONTEXT() do { if (!stub_current()) return CUDA_ERROR_INVALID_CONTEXT; } while (0)

/* ---- plain ---- */

static CUresult plain(CUdeviceptr *ptr, uint64_t bytes)
{
	uint64_t charged = physical(bytes);
	void *p;
	NEED_CONTEXT();
	if (!ptr || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (unsafe_call())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (bytes > stub_card_size() || !stub_take(stub_current()->dev, charged))
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = host(bytes, -1, PROT_READ | PROT_WRITE);
	*ptr = (CUdeviceptr)(uintptr_t)p;
	object_add(IS_PTR, *ptr, stub_current()->dev, bytes, charged);
	return CUDA_SUCCESS;
}
API CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes) { return plain(ptr, bytes); }
API CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned flags) { (void)flags; return plain(ptr, bytes); }
API CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t w, size_t h, unsigned e)
{
	(void)e;
	*pitch = UP(w, 512);
	if (w > stub_card_size() || h > stub_card_size())
		return CUDA_ERROR_OUT_OF_MEMORY;
	return plain(ptr, *pitch * h);
}
API CUresult cuMemAlloc(unsigned *ptr, unsigned bytes) { *ptr = 4096; return bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
API CUresult cuMemAllocPitch(unsigned *ptr, unsigned *pitch, unsigned w, unsigned h, unsigned e) { (void)h, (void)e; *ptr = 4096; *pitch = w; return CUDA_SUCCESS; }
API CUresult cuArrayCreate(CUarray *a, const void *d) { (void)d; *a = NULL; return CUDA_SUCCESS; }
API CUresult cuArray3DCreate(CUarray *a, const void *d) { (void)d; *a = NULL; return CUDA_SUCCESS; }

static struct object *default_pool(int dev) { return &default_pools[dev]; }

API CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	struct object *o = object_find(IS_PTR, ptr);
	NEED_CONTEXT();
	if (o && unsafe_call())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!o && (o = object_find(IS_ASYNC, ptr)))
		LOCKED(o->link->used -= o->bytes);
	if (!o)
		o = object_find(IS_IPC, ptr);
	if (!o)
		return ptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	munmap((void *)(uintptr_t)ptr, UP(o->bytes, 4096));
	object_drop(o);
	return CUDA_SUCCESS;
}
API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	LOCKED(for (struct object *o = objects; o; o = o->next)
		if ((o->kind == IS_PTR || o->kind == IS_IPC || o->kind == IS_ASYNC) && ptr >= o->key && ptr < o->key + o->bytes) {
			if (base) *base = o->key;
			if (size) *size = o->bytes;
			r = CUDA_SUCCESS;
		});
	return r;
}
API CUresult cuMemGetInfo_v2(size_t *free_, size_t *total)
{
	NEED_CONTEXT();
	*total = stub_card_size();
	*free_ = *total - stub_card_used(stub_current()->dev);
	return CUDA_SUCCESS;
}
API CUresult cuMemGetInfo(unsigned *f, unsigned *t) { *f = *t = UINT32_MAX; return CUDA_SUCCESS; }
API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) { (void)dev; *bytes = stub_card_size(); return CUDA_SUCCESS; }
API CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice dev) { (void)dev; *bytes = UINT32_MAX; return CUDA_SUCCESS; }

/* ---- pools: reserve in steps, and hold on to what is freed until trimmed ---- */

API CUresult cuDeviceGetMemPool(CUmemPool *pool, CUdevice dev) { *pool = default_pool(dev); return CUDA_SUCCESS; }
API CUresult cuDeviceGetDefaultMemPool(CUmemPool *pool, CUdevice dev) { *pool = default_pool(dev); return CUDA_SUCCESS; }
API CUresult cuMemPoolCreate(CUmemPool *pool, const CUmemPoolProps *props)
{
	struct object *o = calloc(1, sizeof *o);
	*o = (struct object){.kind = IS_POOL, .dev = props->location.id, .fd = -1};
	*pool = o;
	return CUDA_SUCCESS;
}
API CUresult cuMemPoolTrimTo(CUmemPool pool, size_t retain)
{
	struct object *o = pool;
	uint64_t want, gone = 0;
	LOCKED(want = UP(o->used, STUB_PAGE); if (want < retain) want = retain;
		if (want < o->reserved) { gone = o->reserved - want; o->reserved = want; });
	if (gone)
		stub_give(o->dev, gone);
	return CUDA_SUCCESS;
}
API CUresult cuMemPoolDestroy(CUmemPool pool)
{
	struct object *o = pool;
	stub_give(o->dev, o->reserved);
	free(o);
	return CUDA_SUCCESS;
}
API CUresult cuMemPoolGetAttribute(CUmemPool pool, int attr, void *value)
{
	struct object *o = pool;
	LOCKED(*(uint64_t *)value = attr == CU_MEMPOOL_RESERVED_CURRENT ? o->reserved : attr == CU_MEMPOOL_USED_CURRENT ? o->used : 0);
	return CUDA_SUCCESS;
}
API CUresult cuMemPoolSetAttribute(CUmemPool pool, int attr, void *value) { (void)pool, (void)attr, (void)value; return CUDA_SUCCESS; }
API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemPool pool, CUstream s)
{
	struct object *o = pool, *n;
	struct graph *g = stub_capture(s);
	uint64_t size = UP(bytes, 512), grow = 0;

	NEED_CONTEXT();
	if (bytes > stub_card_size())
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (g) {
		g->nodes++;
		g->bytes += physical(bytes);
		*ptr = (CUdeviceptr)(uintptr_t)host(bytes, -1, PROT_READ | PROT_WRITE);
		return CUDA_SUCCESS;
	}
	LOCKED(if (o->used + size > o->reserved) grow = UP(o->used + size - o->reserved, POOL_STEP));
	if (grow && !stub_take(o->dev, grow)) {
		grow = UP(o->used + size - o->reserved, STUB_PAGE);
		if (!stub_take(o->dev, grow))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	LOCKED(o->reserved += grow; o->used += size);
	*ptr = (CUdeviceptr)(uintptr_t)host(bytes, -1, PROT_READ | PROT_WRITE);
	n = object_add(IS_ASYNC, *ptr, o->dev, size, 0);
	n->link = o;
	return CUDA_SUCCESS;
}
API CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream s)
{
	NEED_CONTEXT();
	return cuMemAllocFromPoolAsync(ptr, bytes, default_pool(stub_current()->dev), s);
}
API CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream s)
{
	(void)s;
	return object_find(IS_ASYNC, ptr) ? cuMemFree_v2(ptr) : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuMemPoolExportToShareableHandle(void *h, CUmemPool p, int t, uint64_t f) { (void)t, (void)f; *(CUmemPool *)h = p; return CUDA_SUCCESS; }
API CUresult cuMemPoolImportFromShareableHandle(CUmemPool *p, void *h, int t, uint64_t f) { (void)t, (void)f; *p = h; return CUDA_SUCCESS; }
API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *d, CUdeviceptr ptr) { memcpy(d, &ptr, sizeof ptr); return CUDA_SUCCESS; }
API CUresult cuMemPoolImportPointer(CUdeviceptr *ptr, CUmemPool pool, CUmemPoolPtrExportData *d)
{
	size_t size;
	CUdeviceptr there;
	(void)pool;
	memcpy(&there, d, sizeof there);
	if (cuMemGetAddressRange_v2(NULL, &size, there))
		return CUDA_ERROR_INVALID_VALUE;
	*ptr = (CUdeviceptr)(uintptr_t)host(size, -1, PROT_READ | PROT_WRITE);
	object_add(IS_IPC, *ptr, stub_current()->dev, size, 0);
	return CUDA_SUCCESS;
}

/* ---- virtual memory management ---- */

static uint64_t file_of(int fd)
{
	struct stat s;
	return fstat(fd, &s) == 0 ? (uint64_t)s.st_ino : 0;
}

API CUresult cuMemCreate(CUmemHandle *h, size_t size, const CUmemProp *prop, unsigned long long flags)
{
	struct object *o;
	int device = prop->location.type == CU_MEM_LOCATION_DEVICE;
	(void)flags;
	if (!size || size % STUB_PAGE)
		return CUDA_ERROR_INVALID_VALUE;
	if (device && !stub_take(prop->location.id, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	o = object_add(IS_VMM, 0, device ? prop->location.id : 0, size, device ? size : 0);
	o->fd = memfd_create("stub", MFD_CLOEXEC);
	if (o->fd < 0 || ftruncate(o->fd, (off_t)size))
		abort();
	o->key = (uintptr_t)o;
	o->tiles = prop->usage == CU_MEM_CREATE_USAGE_TILE_POOL;
	o->shareable = prop->handle_types & CU_MEM_HANDLE_POSIX_FD;
	o->id = file_of(o->fd);
	stub_memory_take(o->id, size, o->dev);
	*h = o->key;
	return CUDA_SUCCESS;
}
static void vmm_settle(struct object *v)
{
	if (v->refs)
		return;
	stub_memory_drop(v->id);
	object_drop(v);
}
API CUresult cuMemRelease(CUmemHandle h)
{
	struct object *v = object_find(IS_VMM, h);
	if (!v)
		return CUDA_ERROR_INVALID_VALUE;
	v->refs--;
	vmm_settle(v);
	return CUDA_SUCCESS;
}
API CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t align, CUdeviceptr addr, unsigned long long flags)
{
	(void)align, (void)addr, (void)flags;
	*ptr = (CUdeviceptr)(uintptr_t)host(size, -1, 0);
	return *ptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) { return munmap((void *)(uintptr_t)ptr, size) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
API CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemHandle h, unsigned long long flags)
{
	struct object *v = object_find(IS_VMM, h), *m;
	(void)flags;
	if (!v || v->tiles || offset + size > v->bytes || object_find(IS_MAP, ptr))
		return CUDA_ERROR_INVALID_VALUE;
	if (mmap((void *)(uintptr_t)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, v->fd, (off_t)offset) == MAP_FAILED)
		return CUDA_ERROR_INVALID_VALUE;
	v->refs++;
	m = object_add(IS_MAP, ptr, v->dev, size, 0);
	m->link = v;
	return CUDA_SUCCESS;
}
API CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	for (CUdeviceptr at = ptr; at < ptr + size;) {
		struct object *m = object_find(IS_MAP, at), *v;
		if (!m)
			return r;
		v = m->link;
		at += m->bytes;
		mmap((void *)(uintptr_t)m->key, m->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		object_drop(m);
		v->refs--;
		vmm_settle(v);
		r = CUDA_SUCCESS;
	}
	return r;
}
/* The host may read and write where the first card may. */
API CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccess *a, size_t n)
{
	for (CUdeviceptr at = ptr; at < ptr + size;) {
		struct object *m = object_find(IS_MAP, at);
		if (!m)
			return CUDA_ERROR_INVALID_VALUE;
		for (size_t i = 0; i < n; i++)
			m->access[a[i].location.id] = (unsigned char)a[i].flags;
		if (mprotect((void *)(uintptr_t)at, m->bytes, m->access[0] == CU_MEM_ACCESS_READWRITE ? PROT_READ | PROT_WRITE : m->access[0] ? PROT_READ : PROT_NONE))
			return CUDA_ERROR_INVALID_VALUE;
		at += m->bytes;
	}
	return CUDA_SUCCESS;
}
API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *l, CUdeviceptr ptr)
{
	struct object *m = object_find(IS_MAP, ptr);
	if (!m)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = m->access[l->id];
	return CUDA_SUCCESS;
}
API CUresult cuMulticastBindMem(CUmemHandle m, size_t at, CUmemHandle h, size_t o, size_t n, unsigned long long f)
{
	(void)m, (void)at, (void)o, (void)n, (void)f;
	return object_find(IS_VMM, h) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr) { (void)data, (void)attribute, (void)ptr; return CUDA_SUCCESS; }
API CUresult cuPointerGetAttributes(unsigned n, int *attributes, void **data, CUdeviceptr ptr) { (void)n, (void)attributes, (void)data, (void)ptr; return CUDA_SUCCESS; }
API CUresult cuMemGetAllocationGranularity(size_t *g, const CUmemProp *p, int o) { (void)p, (void)o; *g = STUB_PAGE; return CUDA_SUCCESS; }
API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemProp *p, CUmemHandle h)
{
	struct object *v = object_find(IS_VMM, h);
	if (!v)
		return CUDA_ERROR_INVALID_VALUE;
	*p = (CUmemProp){.type = 1, .location = {CU_MEM_LOCATION_DEVICE, v->dev}};
	return CUDA_SUCCESS;
}
API CUresult cuMemRetainAllocationHandle(CUmemHandle *h, void *addr)
{
	struct object *m = object_find(IS_MAP, (uintptr_t)addr);
	if (!m)
		return CUDA_ERROR_INVALID_VALUE;
	m->link->refs++;
	*h = m->link->key;
	return CUDA_SUCCESS;
}
/* A descriptor is of its file: importing makes another handle on the same memory, which the importer does not pay for. */
API CUresult cuMemExportToShareableHandle(void *os, CUmemHandle h, int type, unsigned long long flags)
{
	struct object *v = object_find(IS_VMM, h);
	(void)flags;
	if (!v || type != CU_MEM_HANDLE_POSIX_FD || !v->shareable)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)os = fcntl(v->fd, F_DUPFD_CLOEXEC, 0);
	return CUDA_SUCCESS;
}
API CUresult cuMemImportFromShareableHandle(CUmemHandle *h, void *os, int type)
{
	int fd = (int)(intptr_t)os;
	uint64_t id = file_of(fd);
	struct object *v;

	if (type != CU_MEM_HANDLE_POSIX_FD || !id || !stub_memory_has(id))
		return CUDA_ERROR_INVALID_VALUE;
	v = object_add(IS_VMM, 0, 0, (uint64_t)lseek(fd, 0, SEEK_END), 0);
	v->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	v->key = (uintptr_t)v;
	v->shareable = 1;
	v->id = id;
	stub_memory_take(id, v->bytes, 0);
	*h = v->key;
	return CUDA_SUCCESS;
}
API CUresult cuMemGetHandleForAddressRange(void *h, CUdeviceptr p, size_t s, int t, unsigned long long f) { (void)p, (void)s, (void)t, (void)f; *(int *)h = -1; return CUDA_SUCCESS; }

/* ---- memory of others ---- */

API CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr ptr)
{
	struct object *o = object_find(IS_PTR, ptr);
	struct { uint64_t magic, bytes; int pid; uint64_t ptr; } in = {0x1dc, o ? o->bytes : 0, getpid(), ptr};
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	memset(h, 0, sizeof *h);
	memcpy(h, &in, sizeof in);
	return CUDA_SUCCESS;
}
API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle h, unsigned flags)
{
	struct { uint64_t magic, bytes; int pid; uint64_t ptr; } in;
	(void)flags;
	memcpy(&in, &h, sizeof in);
	if (in.magic != 0x1dc)
		return CUDA_ERROR_INVALID_VALUE;
	*ptr = (CUdeviceptr)(uintptr_t)host(in.bytes, -1, PROT_READ | PROT_WRITE);
	object_add(IS_IPC, *ptr, stub_current()->dev, in.bytes, 0);
	return CUDA_SUCCESS;
}
API CUresult cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle h, unsigned flags) { return cuIpcOpenMemHandle_v2(ptr, h, flags); }
API CUresult cuIpcCloseMemHandle(CUdeviceptr ptr) { return object_find(IS_IPC, ptr) ? cuMemFree_v2(ptr) : CUDA_ERROR_INVALID_VALUE; }
API CUresult cuImportExternalMemory(CUexternalMemory *m, const CUexternalMemoryDesc *d)
{
	*m = malloc(1);
	object_add(IS_EXTERNAL, (uintptr_t)*m, 0, d->size, 0);
	return CUDA_SUCCESS;
}
API CUresult cuDestroyExternalMemory(CUexternalMemory m)
{
	struct object *o = object_find(IS_EXTERNAL, (uintptr_t)m);
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	object_drop(o);
	free(m);
	return CUDA_SUCCESS;
}
API CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource *r, unsigned b, unsigned f) { (void)b, (void)f; *r = NULL; return CUDA_SUCCESS; }
API CUresult cuGraphicsGLRegisterImage(CUgraphicsResource *r, unsigned i, unsigned t, unsigned f) { (void)i, (void)t, (void)f; *r = NULL; return CUDA_SUCCESS; }
API CUresult cuGraphicsEGLRegisterImage(CUgraphicsResource *r, void *i, unsigned f) { (void)i, (void)f; *r = NULL; return CUDA_SUCCESS; }
API CUresult cuMemHostRegister_v2(void *p, size_t n, unsigned f) { (void)p, (void)n, (void)f; return CUDA_SUCCESS; }
API CUresult cuMemHostUnregister(void *p) { (void)p; return CUDA_SUCCESS; }
API CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t n, CUdevice d, CUstream s) { (void)p, (void)n, (void)d, (void)s; return CUDA_SUCCESS; }
API CUresult cuMemPrefetchAsync_v2(CUdeviceptr p, size_t n, CUmemLocation l, unsigned f, CUstream s) { (void)p, (void)n, (void)l, (void)f, (void)s; return CUDA_SUCCESS; }

/* ---- copies and fills ---- */

static CUresult copy(uint64_t to, uint64_t from, size_t n) { memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, n); return CUDA_SUCCESS; }
API CUresult cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n) { return copy(d, s, n); }
API CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) { (void)st; return copy(d, s, n); }
API CUresult cuMemcpyPeer(CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n) { (void)dc, (void)sc; return copy(d, s, n); }
API CUresult cuMemcpyPeerAsync(CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n, CUstream st) { (void)dc, (void)sc, (void)st; return copy(d, s, n); }
API CUresult cuMemcpyHtoD_v2(CUdeviceptr d, const void *s, size_t n) { return copy(d, (uintptr_t)s, n); }
API CUresult cuMemcpyDtoH_v2(void *d, CUdeviceptr s, size_t n) { return copy((uintptr_t)d, s, n); }
API CUresult cuMemcpyDtoD_v2(CUdeviceptr d, CUdeviceptr s, size_t n) { return copy(d, s, n); }
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void *s, size_t n, CUstream st) { return of_ended(st) ? of_ended(st) : copy(d, (uintptr_t)s, n); }
API CUresult cuMemcpyDtoHAsync_v2(void *d, CUdeviceptr s, size_t n, CUstream st) { return of_ended(st) ? of_ended(st) : copy((uintptr_t)d, s, n); }
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) { (void)st; return copy(d, s, n); }
#define QUIET(name, ...) API CUresult name(__VA_ARGS__) { return CUDA_SUCCESS; }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
/* These only have to be callable. */
QUIET(cuPointerSetAttribute, const void *v, int a, CUdeviceptr p)
QUIET(cuTexObjectCreate, unsigned long long *t, const void *r, const void *h, const void *v)
QUIET(cuSurfObjectCreate, unsigned long long *t, const void *r)
QUIET(cuStreamWaitValue32, CUstream s, CUdeviceptr p, unsigned v, unsigned f)
QUIET(cuStreamWaitValue32_v2, CUstream s, CUdeviceptr p, unsigned v, unsigned f)
QUIET(cuStreamWaitValue64, CUstream s, CUdeviceptr p, unsigned long long v, unsigned f)
QUIET(cuStreamWaitValue64_v2, CUstream s, CUdeviceptr p, unsigned long long v, unsigned f)
QUIET(cuStreamBatchMemOp, CUstream s, unsigned n, void *o, unsigned f)
QUIET(cuStreamBatchMemOp_v2, CUstream s, unsigned n, void *o, unsigned f)
QUIET(cuMemcpyAtoA_v2, CUarray d, size_t da, CUarray s, size_t sa, size_t n)
QUIET(cuMemBatchDecompressAsync, void *p, size_t c, unsigned g, size_t *f, CUstream st)
QUIET(cuMemcpy2D_v2, const void *c)
QUIET(cuMemcpy2DUnaligned_v2, const void *c)
QUIET(cuMemcpy3DPeer, const void *c)
QUIET(cuMemcpy2DAsync_v2, const void *c, CUstream st)
QUIET(cuMemcpy3DPeerAsync, const void *c, CUstream st)
QUIET(cuMemcpyBatchAsync, void *d, void *s, size_t *z, size_t c, void *a, size_t *i, size_t n, size_t *f, CUstream st)
QUIET(cuMemcpyBatchAsync_v2, void *d, void *s, size_t *z, size_t c, void *a, size_t *i, size_t n, CUstream st)
QUIET(cuMemcpy3DBatchAsync, size_t c, void *o, size_t *f, unsigned long long g, CUstream st)
QUIET(cuMemcpy3DBatchAsync_v2, size_t c, void *o, unsigned long long g, CUstream st)
#pragma GCC diagnostic pop
/* Where nothing is mapped the card faults: here the test does. */
#define WRITE_VALUE(name, type) API CUresult name(CUstream s, CUdeviceptr p, type v, unsigned f) { (void)s, (void)f; *(type *)(uintptr_t)p = v; return CUDA_SUCCESS; }
WRITE_VALUE(cuStreamWriteValue32, unsigned)
WRITE_VALUE(cuStreamWriteValue32_v2, unsigned)
WRITE_VALUE(cuStreamWriteValue64, unsigned long long)
WRITE_VALUE(cuStreamWriteValue64_v2, unsigned long long)
#define FILL(name, type) \
	static CUresult fill_##type(CUdeviceptr d, type v, size_t n) { for (size_t i = 0; i < n; i++) ((type *)(uintptr_t)d)[i] = v; return CUDA_SUCCESS; } \
	API CUresult cuMemsetD##name##_v2(CUdeviceptr d, type v, size_t n) { return fill_##type(d, v, n); } \
	API CUresult cuMemsetD##name##Async(CUdeviceptr d, type v, size_t n, CUstream s) { (void)s; return fill_##type(d, v, n); } \
	API CUresult cuMemsetD2D##name##_v2(CUdeviceptr d, size_t p, type v, size_t w, size_t h) { for (size_t i = 0; i < h; i++) fill_##type(d + i * p, v, w); return CUDA_SUCCESS; } \
	API CUresult cuMemsetD2D##name##Async(CUdeviceptr d, size_t p, type v, size_t w, size_t h, CUstream s) { (void)s; return cuMemsetD2D##name##_v2(d, p, v, w, h); }
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
FILL(8, u8)
FILL(16, u16)
FILL(32, u32)
