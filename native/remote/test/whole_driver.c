/*
 * libcuda.so.1 for the test that calls every row of calls.tab: the driver of the library's tests, and what that one does not
 * need. What is set can be asked for here, so that a parameter that goes astray shows.
 */
#define cuDeviceGetAttribute stub_device_attribute
#define cuDevicePrimaryCtxGetState stub_primary_state
#define cuStreamCreate stub_stream_create
#define cuCtxDestroy_v2 stub_destroy_context
#define cuModuleLoadFatBinary stub_load_fat_binary
#define cuModuleLoadDataEx stub_load_with_options
#define cuMemcpyHtoDAsync_v2 stub_copy_to_card
#define cuMemcpy2D_v2 stub_copy_2d
#define cuMemcpy2DUnaligned_v2 stub_copy_2d_unaligned
#define cuMemcpy2DAsync_v2 stub_copy_2d_async
#define cuMemcpy3D_v2 stub_copy_3d
#define cuMemcpy3DAsync_v2 stub_copy_3d_async
#define cuPointerGetAttribute stub_pointer_attribute
#define cuPointerGetAttributes stub_pointer_attributes
#define cuLaunchKernelEx stub_launch_ex
#define cuModuleLoad stub_load_file
#define cuLibraryLoadData stub_library_load
#define cuLibraryLoadFromFile stub_library_load_file
#define cuLaunchKernel stub_launch
#define cuLaunchCooperativeKernel stub_launch_cooperative
#include <stdbool.h>
#include <elf.h>
#include "../../cuda/test/stub_cuda.c"
#undef cuMemcpy2D_v2
#undef cuMemcpy2DUnaligned_v2
#undef cuMemcpy2DAsync_v2
#undef cuMemcpy3D_v2
#undef cuMemcpy3DAsync_v2
#undef cuPointerGetAttribute
#undef cuPointerGetAttributes
#undef cuLaunchKernelEx
#undef cuModuleLoad
#undef cuLibraryLoadData
#undef cuLibraryLoadFromFile
#undef cuLaunchKernel
#undef cuLaunchCooperativeKernel
#undef cuDeviceGetAttribute
#undef cuDevicePrimaryCtxGetState
#undef cuStreamCreate
#undef cuCtxDestroy_v2
#undef cuModuleLoadFatBinary
#undef cuModuleLoadDataEx
#undef cuMemcpyHtoDAsync_v2

/* ---- devices and contexts ---- */

static _Atomic unsigned primary_flags[4];
static _Atomic int cache_config[4];
static _Atomic size_t limits[4][8];

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice d)
{
	if (attribute <= 0 || !is_device(d))
		return attribute <= 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
	*value = 1000 * attribute + d;
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice d)
{
	snprintf(id, (size_t)size, "0000:%02X:00.0", 16 + (unsigned)d);
	return is_device(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned flags)
{
	if (!is_device(d))
		return CUDA_ERROR_INVALID_DEVICE;
	primary_flags[d] = flags;
	return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active)
{
	CUresult r = stub_primary_state(d, flags, active);
	if (r == CUDA_SUCCESS)
		*flags = primary_flags[d];
	return r;
}
API CUresult cuCtxGetFlags(unsigned *flags) { NEED_CONTEXT(); *flags = primary_flags[stub_current()->dev]; return CUDA_SUCCESS; }
API CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned *version)
{
	struct context *c = ctx ? ctx : stub_current();
	if (!c)
		return CUDA_ERROR_INVALID_CONTEXT;
	*version = 3020 + (unsigned)c->dev;
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetLimit(size_t *value, int limit)
{
	NEED_CONTEXT();
	if (limit < 0 || limit > 7)
		return CUDA_ERROR_INVALID_VALUE;
	*value = limits[stub_current()->dev][limit];
	return CUDA_SUCCESS;
}
API CUresult cuCtxSetLimit(int limit, size_t value)
{
	NEED_CONTEXT();
	if (limit < 0 || limit > 7)
		return CUDA_ERROR_INVALID_VALUE;
	limits[stub_current()->dev][limit] = value;
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetCacheConfig(int *config) { NEED_CONTEXT(); *config = cache_config[stub_current()->dev]; return CUDA_SUCCESS; }
API CUresult cuCtxSetCacheConfig(int config) { NEED_CONTEXT(); cache_config[stub_current()->dev] = config; return CUDA_SUCCESS; }
API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) { NEED_CONTEXT(); *least = 0; *greatest = -5; return CUDA_SUCCESS; }

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice d)
{
	if (!is_device(d))
		return CUDA_ERROR_INVALID_DEVICE;
	*major = 9;
	*minor = d;
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetByPCIBusId(CUdevice *d, const char *id)
{
	unsigned bus;
	if (sscanf(id, "0000:%x:00.0", &bus) != 1 || !is_device((int)bus - 16))
		return CUDA_ERROR_INVALID_VALUE;
	*d = (int)bus - 16;
	return CUDA_SUCCESS;
}
API CUresult cuCtxSetFlags(unsigned flags) { NEED_CONTEXT(); primary_flags[stub_current()->dev] = flags; return CUDA_SUCCESS; }
API CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
API CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }

/* ---- code ---- */

#define LAUNCHED 101 /* the attributes of the last launch that had some */
static _Atomic int launched;
#define FUNCTIONS (sizeof named / sizeof *named)
#define SETTABLE 8  /* the dynamic shared memory that a launch may have; the next is the carveout */
#define CACHE 100   /* no driver says it */
static _Atomic int function_attributes[FUNCTIONS][3];

static unsigned index_of_function(CUfunction f)
{
	unsigned i = 0;
	while (i < FUNCTIONS && named[i].kernel != f)
		i++;
	return i;
}
API CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction f)
{
	unsigned i = index_of_function(f);
	if (i == FUNCTIONS)
		return CUDA_ERROR_INVALID_HANDLE;
	if (attribute == LAUNCHED)
		*value = launched;
	else if (attribute == CACHE)
		*value = function_attributes[i][2];
	else if (attribute == SETTABLE || attribute == SETTABLE + 1)
		*value = function_attributes[i][attribute - SETTABLE];
	else
		*value = 100 * (int)i + attribute;
	return CUDA_SUCCESS;
}
API CUresult cuFuncSetAttribute(CUfunction f, int attribute, int value)
{
	unsigned i = index_of_function(f);
	if (i == FUNCTIONS || (attribute != SETTABLE && attribute != SETTABLE + 1))
		return CUDA_ERROR_INVALID_VALUE;
	function_attributes[i][attribute - SETTABLE] = value;
	return CUDA_SUCCESS;
}
API CUresult cuFuncSetCacheConfig(CUfunction f, int config)
{
	unsigned i = index_of_function(f);
	if (i == FUNCTIONS)
		return CUDA_ERROR_INVALID_HANDLE;
	function_attributes[i][2] = config;
	return CUDA_SUCCESS;
}
/* Those that reckon take a library's kernel, too. */
static CUfunction launchable(CUfunction f);
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction f, int threads, size_t shared, unsigned flags)
{
	if (index_of_function(launchable(f)) == FUNCTIONS || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = 100000 * (int)flags + 1000 * (int)(shared >> 10) + 2048 / threads;
	return CUDA_SUCCESS;
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads, size_t shared)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared, 0);
}
API CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction f, int blocks, int threads)
{
	if (index_of_function(launchable(f)) == FUNCTIONS || blocks <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = (size_t)(100000 / blocks + threads);
	return CUDA_SUCCESS;
}

/* ---- what compiles says something of it ---- */

enum { INFO_LOG = 3, ERROR_LOG = 5, INVALID_PTX = 218 };

/* A log of the program's, after whose option its size is. */
static void say(unsigned n, const int *options, void **values, int log, const char *words)
{
	for (unsigned i = 0; i + 1 < n; i++)
		if (options[i] == log && options[i + 1] == log + 1) {
			snprintf(values[i], (uintptr_t)values[i + 1], "%s", words);
			values[i + 1] = (void *)strlen(values[i]);
		}
}

/* Text stays text, and the first option's number is put before it. */
API CUresult cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, int *options, void **values)
{
	char text[128];
	if (*(const char *)image != '.' || !n)
		return code_load(m, image);
	if (strstr(image, "mistake")) {
		say(n, options, values, ERROR_LOG, "line 1: a mistake");
		return INVALID_PTX;
	}
	say(n, options, values, INFO_LOG, "it fits");
	snprintf(text, sizeof text, ".option %d is %u %.64s", options[0], (unsigned)(uintptr_t)values[0], (const char *)image);
	return code_load(m, text);
}
API CUresult cuModuleLoadFatBinary(CUmodule *m, const void *image) { return code_load(m, image); }
API CUresult cuModuleLoad(CUmodule *m, const char *path)
{
	char text[128] = "";
	FILE *f = fopen(path, "r");
	if (!f)
		return 301;
	if (!fgets(text, sizeof text, f))
		*text = 0;
	fclose(f);
	return code_load(m, text);
}

/* Libraries: their kernels are not their functions, and both can be launched. */
API CUresult cuLibraryLoadData(CUlibrary *l, const void *code, int *o, void **v, unsigned n, int *lo, void **lv, unsigned ln)
{
	(void)lo, (void)lv, (void)ln;
	return cuModuleLoadDataEx(l, code, n, o, v);
}
API CUresult cuLibraryLoadFromFile(CUlibrary *l, const char *path, int *o, void **v, unsigned n, int *lo, void **lv, unsigned ln)
{
	(void)o, (void)v, (void)n, (void)lo, (void)lv, (void)ln;
	return cuModuleLoad(l, path);
}
API CUresult cuLibraryGetKernel(void **kernel, CUlibrary l, const char *name)
{
	(void)l;
	for (unsigned i = 0; i < FUNCTIONS; i++)
		if (!strcmp(named[i].name, name)) {
			*kernel = (void *)&named[i];
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}
API CUresult cuLibraryGetGlobal(CUdeviceptr *ptr, size_t *bytes, CUlibrary l, const char *name) { return cuModuleGetGlobal_v2(ptr, bytes, l, name); }
static bool is_kernel(const void *k) { return (const struct named *)k >= named && (const struct named *)k < named + FUNCTIONS; }
API CUresult cuKernelGetFunction(CUfunction *f, void *kernel)
{
	if (!is_kernel(kernel))
		return CUDA_ERROR_INVALID_HANDLE;
	*f = ((const struct named *)kernel)->kernel;
	return CUDA_SUCCESS;
}
API CUresult cuKernelGetParamInfo(void *kernel, size_t index, size_t *offset, size_t *size)
{
	CUfunction f;
	return cuKernelGetFunction(&f, kernel) == CUDA_SUCCESS ? cuFuncGetParamInfo(f, index, offset, size) : CUDA_ERROR_INVALID_HANDLE;
}
API CUresult cuKernelGetAttribute(int *value, int attribute, void *kernel, CUdevice d)
{
	CUfunction f;
	CUresult r = cuKernelGetFunction(&f, kernel);
	if (r == CUDA_SUCCESS)
		r = cuFuncGetAttribute(value, attribute, f);
	*value += 10000 * d;
	return r;
}
API CUresult cuKernelSetAttribute(int attribute, int value, void *kernel, CUdevice d)
{
	CUfunction f;
	CUresult r = cuKernelGetFunction(&f, kernel);
	return r == CUDA_SUCCESS ? cuFuncSetAttribute(f, attribute, value + d) : r;
}
API CUresult cuKernelSetCacheConfig(void *kernel, int config, CUdevice d)
{
	CUfunction f;
	CUresult r = cuKernelGetFunction(&f, kernel);
	return r == CUDA_SUCCESS ? cuFuncSetCacheConfig(f, config + d) : r;
}
static CUfunction launchable(CUfunction f) { return is_kernel(f) ? ((const struct named *)f)->kernel : f; }
API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, CUstream s, void **params, void **extra)
{
	return stub_launch(launchable(f), gx, gy, gz, bx, by, bz, sh, s, params, extra);
}
API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, CUstream s, void **params)
{
	return stub_launch_cooperative(launchable(f), gx, gy, gz, bx, by, bz, sh, s, params);
}
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	launched = (int)(100 * c->grid[1] + 10 * c->block[2] + c->shared_bytes);
	for (unsigned i = 0; i < c->num_attrs; i++)
		launched += 1000 * c->attrs[i].id + c->attrs[i].value[0];
	return stub_launch_ex(c, launchable(f), params, extra);
}

/* What the linker makes says in a section of no name what went in. */
struct linker { unsigned n; int *options; void **values; size_t size; struct { Elf64_Ehdr header; char text[4096]; } out; };

API CUresult cuLinkCreate_v2(unsigned n, int *options, void **values, void **state)
{
	struct linker *l = calloc(1, sizeof *l);
	l->n = n;
	l->options = options;
	l->values = values;
	memcpy(l->out.header.e_ident, ELFMAG, SELFMAG);
	if (n && !options[0])
		l->size += (size_t)sprintf(l->out.text, "%u registers", (unsigned)(uintptr_t)values[0]);
	*state = l;
	return CUDA_SUCCESS;
}
API CUresult cuLinkAddData_v2(void *state, int type, void *data, size_t size, const char *name, unsigned n, int *options, void **values)
{
	struct linker *l = state;
	(void)n, (void)options, (void)values;
	if (memmem(data, size, "mistake", 7)) {
		say(l->n, l->options, l->values, ERROR_LOG, "in one input: a mistake");
		return INVALID_PTX;
	}
	l->size += (size_t)snprintf(l->out.text + l->size, 256, ", %s of kind %d, %d bytes, %.16s", name ? name : "", type, type == 1 ? 0 : (int)size, (char *)data);
	return CUDA_SUCCESS;
}
API CUresult cuLinkAddFile_v2(void *state, int type, const char *path, unsigned n, int *options, void **values)
{
	char text[128] = "";
	FILE *f = fopen(path, "r");
	if (!f)
		return 301;
	size_t size = fread(text, 1, sizeof text, f);
	fclose(f);
	return cuLinkAddData_v2(state, type, text, size, path, n, options, values);
}
API CUresult cuLinkComplete(void *state, void **code, size_t *size)
{
	struct linker *l = state;
	say(l->n, l->options, l->values, INFO_LOG, "linked");
	l->out.header.e_phoff = sizeof l->out.header;
	l->out.header.e_phnum = 1;
	l->out.header.e_phentsize = (Elf64_Half)(l->size + 1);
	*code = &l->out;
	*size = sizeof l->out.header + l->size + 1;
	return CUDA_SUCCESS;
}
API CUresult cuLinkDestroy(void *state) { free(state); return CUDA_SUCCESS; }

/* ---- copies of boxes, and what an address is ---- */

static char *end_at(const CUcopyEnd *e, size_t y, size_t z)
{
	char *base = e->type == CU_MEMORY_HOST ? e->host : (char *)(uintptr_t)e->device;
	return base + e->x + (e->y + y + (e->z + z) * e->height) * e->pitch;
}
API CUresult cuMemcpy3D_v2(const void *copy)
{
	const CUcopy3D *c = copy;
	NEED_CONTEXT();
	if (c->src.type > CU_MEMORY_DEVICE || c->dst.type > CU_MEMORY_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (c->width > c->src.pitch || c->width > c->dst.pitch)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t z = 0; z < c->depth; z++)
		for (size_t y = 0; y < c->height; y++)
			memmove(end_at(&c->dst, y, z), end_at(&c->src, y, z), c->width);
	return CUDA_SUCCESS;
}
API CUresult cuMemcpy3DAsync_v2(const void *c, CUstream s) { (void)s; return cuMemcpy3D_v2(c); }
#define END(e) {.x = (e).x, .y = (e).y, .type = (e).type, .host = (e).host, .device = (e).device, .pitch = (e).pitch}
API CUresult cuMemcpy2D_v2(const void *copy)
{
	const CUcopy2D *c = copy;
	return cuMemcpy3D_v2(&(CUcopy3D){END(c->src), END(c->dst), c->width, c->height, 1});
}
API CUresult cuMemcpy2DUnaligned_v2(const void *c) { return cuMemcpy2D_v2(c); }
API CUresult cuMemcpy2DAsync_v2(const void *c, CUstream s) { (void)s; return cuMemcpy2D_v2(c); }

API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr)
{
	CUdeviceptr base;
	size_t bytes;
	NEED_CONTEXT();
	if (cuMemGetAddressRange_v2(&base, &bytes, ptr) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case 1: *(CUcontext *)data = stub_current(); break;
	case 2: *(unsigned *)data = 2; break;
	case 3: *(CUdeviceptr *)data = ptr; break;
	case 8: *(unsigned *)data = 0; break;
	case 9: *(int *)data = stub_current()->dev; break;
	case 11: *(CUdeviceptr *)data = base; break;
	case 12: *(size_t *)data = bytes; break;
	default: return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_SUCCESS;
}
API CUresult cuPointerGetAttributes(unsigned n, int *attributes, void **data, CUdeviceptr ptr)
{
	for (unsigned i = 0; i < n; i++)
		if (cuPointerGetAttribute(data[i], attributes[i], ptr) != CUDA_SUCCESS)
			memset(data[i], 0, attributes[i] == 2 || attributes[i] == 9 ? 4 : 8);
	return n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- memory of the program, streams ---- */

API CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	if (!ptr || !bytes || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	*ptr = malloc(bytes);
	return *ptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API CUresult cuMemAllocHost_v2(void **ptr, size_t bytes) { return cuMemHostAlloc(ptr, bytes, 0); }
API CUresult cuMemFreeHost(void *ptr) { free(ptr); return CUDA_SUCCESS; }

/* How streams were made. They are few, and none is asked about after its end. */
static struct { CUstream stream; struct context *context; unsigned flags; int priority; bool gone; } made[4096];
static _Atomic unsigned made_count;

API CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority)
{
	unsigned n = atomic_fetch_add(&made_count, 1) % (sizeof made / sizeof *made);
	CUresult r = stub_stream_create(s, flags);
	made[n].stream = *s;
	made[n].context = stub_current();
	made[n].gone = false;
	made[n].flags = flags;
	made[n].priority = priority;
	return r;
}
API CUresult cuStreamCreate(CUstream *s, unsigned flags) { return cuStreamCreateWithPriority(s, flags, 0); }

static int how_made(CUstream s)
{
	for (int i = (int)(sizeof made / sizeof *made) - 1; i >= 0; i--)
		if (s && made[i].stream == s)
			return i;
	return -1;
}
API CUresult cuStreamGetPriority(CUstream s, int *priority) { *priority = how_made(s) < 0 ? 0 : made[how_made(s)].priority; return CUDA_SUCCESS; }
/* A stream ends with its context. */
API CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	for (unsigned i = 0; i < sizeof made / sizeof *made; i++)
		made[i].gone |= made[i].context == ctx;
	return stub_destroy_context(ctx);
}
API CUresult cuStreamGetFlags(CUstream s, unsigned *flags)
{
	if (how_made(s) >= 0 && made[how_made(s)].gone)
		return CUDA_ERROR_INVALID_HANDLE;
	*flags = how_made(s) < 0 ? 0 : made[how_made(s)].flags;
	return CUDA_SUCCESS;
}
API CUresult cuStreamQuery(CUstream s)
{
	if (!stream_of(s))
		return CUDA_ERROR_INVALID_CONTEXT;
	return atomic_load(&stream_of(s)->done) <= stub_now() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
	struct stream *st = stream_of(s);
	if (!st || flags)
		return st ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
	if (atomic_load(&st->done) < atomic_load(&((struct event *)e)->done))
		atomic_store(&st->done, atomic_load(&((struct event *)e)->done));
	return CUDA_SUCCESS;
}

/* A copy in a capture is a node of the graph: nothing is copied now, and what it would copy later lies where it lay. */
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
	struct graph *g = stub_capture(s);
	if (!g)
		return stub_copy_to_card(to, from, n, s);
	g->nodes++;
	return CUDA_SUCCESS;
}

API CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned flags) { return flags > 1 ? CUDA_ERROR_INVALID_VALUE : cuEventRecord(e, s); }
API CUresult cuGraphUpload(CUgraphExec exec, CUstream s) { return exec && stream_of(s) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

/* Second names that the library's tests do not look for. */
#define SECOND(name) __asm__(".text\n.globl " #name "_ptsz\n.type " #name "_ptsz, @function\n" #name "_ptsz: jmp " #name "\n");
SECOND(cuEventRecord)
SECOND(cuGraphUpload)
SECOND(cuEventRecordWithFlags)
SECOND(cuStreamGetFlags)
SECOND(cuStreamGetPriority)
SECOND(cuStreamIsCapturing)
SECOND(cuStreamQuery)
SECOND(cuStreamWaitEvent)
