/* libcuda.so.1 for tests. Contexts, streams, events and code here; memory in stub_memory.c and stub_arrays.c,
   graphs in stub_graphs.c, which it includes. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include <stdatomic.h>
#include "stub.h"

#define API __attribute__((visibility("default")))

struct work { void (*body)(void **params); uint64_t args[4]; };
struct graph { int64_t ns; int nodes; uint64_t bytes; int works, objects; struct work work[64]; struct user_object *object[64]; };
struct stream { _Atomic int64_t done; int capturing, non_blocking; struct capture { int mode, spoilt; pthread_t by; } capture; struct graph *graph; struct context *ctx; };
struct event { _Atomic int64_t done; };
struct context { CUdevice dev; _Atomic int refs; _Atomic int ended; struct stream legacy; _Atomic int64_t done; _Atomic(struct stub_kernel *) meets; _Atomic int meets_for, waits; };

static int stub_take(int dev, uint64_t bytes);
static void stub_give(int dev, uint64_t bytes);
static void stub_free_context(struct context *c);
static void captures_end_of(const struct context *c);
static int stub_graph_reserve(int dev, uint64_t bytes);
static void stub_graph_free(struct graph *g);
extern _Atomic uint64_t stub_launched;
API int stub_args; /* so many arguments of 8 bytes of each captured kernel are remembered, and the graph does what it does */

static uint64_t stub_context_bytes(void)
{
	const char *s = getenv("STUB_CONTEXT");
	return s ? strtoull(s, NULL, 10) : (uint64_t)64 << 20;
}

static int64_t stub_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void until(int64_t when)
{
	while (stub_now() < when)
		sched_yield();
}

/* Until all that a context's last such kernel waits for have come so far. */
static void until_met(struct stub_kernel *k, int times)
{
	for (int i = 0; k && i < k->ranks; i++)
		while (atomic_load(&k->meeting->launched[i]) < times)
			sched_yield();
}

static _Atomic int initialized;
static struct context primaries[4];
static __thread struct context *stack[16];
static __thread int depth;

static struct context *stub_current(void) { return depth ? stack[depth - 1] : NULL; }

/* A context that was destroyed, or a card's own that nobody has: what is asked of it fails, as with the real one. */
static int ended(const struct context *c)
{
	return c && (c >= primaries && c < primaries + 4 ? !atomic_load(&c->refs) : atomic_load(&c->ended));
}

static int mps;
API char stub_mps_percent[16]; /* what the driver has taken from the environment */

/* As the driver does: a daemon's pipe where the environment says, or no MPS. */
static void find_daemon(void)
{
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY"), *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	char control[512];

	snprintf(control, sizeof control, "%s/control", dir ? dir : "/tmp/nvidia-mps");
	mps = access(control, F_OK) == 0;
	snprintf(stub_mps_percent, sizeof stub_mps_percent, "%s", mps && percent ? percent : "");
}
API CUresult cuInit(unsigned flags)
{
	if (!atomic_exchange(&initialized, 1))
		find_daemon();
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice d) 
{
	(void)d;
	*value = attribute == CU_DEVICE_ATTRIBUTE_MPS ? mps : attribute == CU_DEVICE_ATTRIBUTE_POSIX_FD ? !getenv("STUB_NO_DESCRIPTORS") : 0;
	return CUDA_SUCCESS;
}
API CUresult cuDriverGetVersion(int *v) { *v = 13000; return CUDA_SUCCESS; }
API CUresult cuDeviceGetCount(int *n) { *n = stub_device_count(); return atomic_load(&initialized) ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED; }
API CUresult cuDeviceGet(CUdevice *d, int i) { *d = i; return i >= 0 && i < stub_device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }
API CUresult cuDeviceGetUuid(CUuuid *u, CUdevice d) { stub_uuid(d, u->bytes); return CUDA_SUCCESS; }
API CUresult cuDeviceGetUuid_v2(CUuuid *u, CUdevice d) { stub_uuid(d, u->bytes); return CUDA_SUCCESS; }
API CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice p) { *can = d != p; return CUDA_SUCCESS; }

/* ---- contexts ---- */

static int is_device(CUdevice dev) { return dev >= 0 && dev < stub_device_count(); }

static CUresult context_take(struct context *c, CUdevice dev)
{
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	c->dev = dev;
	return stub_take(dev, stub_context_bytes()) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice dev)
{
	struct context *c = calloc(1, sizeof *c);
	CUresult r = context_take(c, dev);
	(void)flags;
	if (r != CUDA_SUCCESS) {
		free(c);
		return r;
	}
	stack[depth++] = c;
	*ctx = c;
	return r;
}
API CUresult cuCtxCreate(CUcontext *ctx, unsigned flags, CUdevice dev) { return cuCtxCreate_v2(ctx, flags, dev); }
API CUresult cuCtxCreate_v3(CUcontext *ctx, void *a, int n, unsigned flags, CUdevice dev) { (void)a, (void)n; return cuCtxCreate_v2(ctx, flags, dev); }
API CUresult cuCtxCreate_v4(CUcontext *ctx, void *p, unsigned flags, CUdevice dev) { (void)p; return cuCtxCreate_v2(ctx, flags, dev); }

/* No other call may use a context while it ends. */
static void nobody_waits(struct context *c)
{
	if (atomic_load(&c->waits)) {
		fprintf(stderr, "a context ends while it is waited for\n");
		abort();
	}
}

API CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	struct context *c = ctx;
	if (!c || (c >= primaries && c < primaries + 4) || ended(c))
		return CUDA_ERROR_INVALID_CONTEXT;
	nobody_waits(c);
	captures_end_of(c);
	stub_free_context(c);
	stub_give(c->dev, stub_context_bytes());
	for (int i = 0; i < depth; i++)
		if (stack[i] == c)
			memmove(stack + i, stack + i + 1, sizeof *stack * (size_t)(--depth - i));
	atomic_store(&c->ended, 1); /* its address is not another's: who still has it is to be found out */
	return CUDA_SUCCESS;
}
API CUresult cuCtxDestroy(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }

API CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
	CUresult r = CUDA_SUCCESS;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (atomic_fetch_add(&primaries[dev].refs, 1) == 0)
		r = context_take(&primaries[dev], dev);
	if (r != CUDA_SUCCESS)
		atomic_fetch_sub(&primaries[dev].refs, 1);
	*ctx = &primaries[dev];
	return r;
}

static CUresult primary_drop(CUdevice dev, int all)
{
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	struct context *c = &primaries[dev];
	if (!atomic_load(&c->refs))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (all)
		atomic_store(&c->refs, 0);
	else if (atomic_fetch_sub(&c->refs, 1) > 1)
		return CUDA_SUCCESS;
	nobody_waits(c);
	stub_free_context(c);
	stub_give(dev, stub_context_bytes());
	return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) { return primary_drop(dev, 0); }
API CUresult cuDevicePrimaryCtxRelease(CUdevice dev) { return primary_drop(dev, 0); }
API CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) { return primary_drop(dev, 1); }
API CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return primary_drop(dev, 1); }
API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = 0;
	*active = atomic_load(&primaries[dev].refs) > 0;
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext *ctx) { *ctx = stub_current(); return CUDA_SUCCESS; }
API CUresult cuCtxSetCurrent(CUcontext ctx)
{
	if (ended(ctx))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!depth)
		depth = 1;
	stack[depth - 1] = ctx;
	return CUDA_SUCCESS;
}
API CUresult cuCtxPushCurrent_v2(CUcontext ctx) { stack[depth++] = ctx; return CUDA_SUCCESS; }
API CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	struct context *c = stack[--depth];
	if (ctx)
		*ctx = c;
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice *dev)
{
	if (!stub_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*dev = stub_current()->dev;
	return CUDA_SUCCESS;
}

/* ---- streams and events ---- */

static __thread struct stream per_thread;

static struct stream *stream_of(CUstream s)
{
	if ((uintptr_t)s > CU_STREAM_PER_THREAD)
		return s;
	if ((uintptr_t)s == CU_STREAM_PER_THREAD)
		return &per_thread;
	return stub_current() ? &stub_current()->legacy : NULL;
}

/* ---- what a capture forbids ---- */

static pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *captured[32]; /* those that are captured now */
static __thread int capture_mode;   /* of this thread, as it has exchanged it */

/* Spoils the captures that a call is not allowed beside, and says whether there was one. */
static int spoils(int (*forbids)(const struct stream *))
{
	int any = 0;

	pthread_mutex_lock(&captures_lock);
	for (int i = 0; i < 32; i++)
		if (captured[i] && forbids(captured[i]))
			any = captured[i]->capture.spoilt = 1;
	pthread_mutex_unlock(&captures_lock);
	return any;
}
static int forbids_unsafe_calls(const struct stream *s)
{
	if (capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED || s->capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return 0;
	return pthread_equal(s->capture.by, pthread_self()) || (capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && s->capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}
static int of_this_context(const struct stream *s) { return s->ctx == stub_current(); }
static int forbids_legacy_stream(const struct stream *s) { return of_this_context(s) && !s->non_blocking; }

/* Calls that may wait for what a capture has not launched: they are not allowed unless a thread says that it knows what it does. */
static CUresult unsafe_call(void) { return spoils(forbids_unsafe_calls) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS; }
/* The legacy stream waits for all others but those that were made so that it does not. */
static CUresult used_stream(CUstream s)
{
	return (uintptr_t)s <= CU_STREAM_LEGACY && spoils(forbids_legacy_stream) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

static void capture_begins(struct stream *s, int mode)
{
	int at = 0;

	pthread_mutex_lock(&captures_lock);
	while (at < 32 && captured[at])
		at++;
	if (at == 32)
		abort();
	s->capture = (struct capture){mode, 0, pthread_self()};
	captured[at] = s;
	pthread_mutex_unlock(&captures_lock);
}

/* Whether it was spoilt. */
static int capture_ends(struct stream *s)
{
	pthread_mutex_lock(&captures_lock);
	for (int i = 0; i < 32; i++)
		if (captured[i] == s)
			captured[i] = NULL;
	pthread_mutex_unlock(&captures_lock);
	return s->capture.spoilt;
}

static void captures_end_of(const struct context *c)
{
	pthread_mutex_lock(&captures_lock);
	for (int i = 0; i < 32; i++)
		if (captured[i] && captured[i]->ctx == c)
			captured[i] = NULL;
	pthread_mutex_unlock(&captures_lock);
}

static CUresult of_ended(CUstream s)
{
	struct stream *st = stream_of(s);
	return !st ? CUDA_ERROR_INVALID_CONTEXT : ended(st->ctx ? st->ctx : stub_current()) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

API CUresult cuStreamCreate(CUstream *s, unsigned flags)
{
	struct stream *st = calloc(1, sizeof *st);
	st->non_blocking = flags & CU_STREAM_NON_BLOCKING;
	st->ctx = stub_current();
	*s = st;
	return CUDA_SUCCESS;
}
API CUresult cuStreamGetCtx(CUstream s, CUcontext *ctx)
{
	struct stream *st = stream_of(s);
	*ctx = st && st->ctx ? st->ctx : stub_current();
	return CUDA_SUCCESS;
}
API CUresult cuStreamDestroy_v2(CUstream s)
{
	capture_ends(s);
	free(s);
	return CUDA_SUCCESS;
}
API CUresult cuStreamDestroy(CUstream s) { return cuStreamDestroy_v2(s); }
API CUresult cuStreamSynchronize(CUstream s)
{
	if (of_ended(s))
		return of_ended(s);
	if (stream_of(s)->capturing) {
		stream_of(s)->capture.spoilt = 1;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (used_stream(s))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	until(atomic_load(&stream_of(s)->done));
	return CUDA_SUCCESS;
}
API CUresult cuCtxSynchronize(void);
API CUresult cuCtxSynchronize_v2(CUcontext ctx) { (void)ctx; return cuCtxSynchronize(); }
API CUresult cuCtxSynchronize(void)
{
	if (!stub_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ended(stub_current()))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (spoils(of_this_context))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	atomic_fetch_add(&stub_current()->waits, 1);
	until(atomic_load(&stub_current()->done));
	until_met(atomic_load(&stub_current()->meets), atomic_load(&stub_current()->meets_for));
	atomic_fetch_sub(&stub_current()->waits, 1);
	return CUDA_SUCCESS;
}
API CUresult cuEventCreate(CUevent *e, unsigned flags) { (void)flags; *e = calloc(1, sizeof(struct event)); return CUDA_SUCCESS; }
API CUresult cuIpcGetEventHandle(CUipcEventHandle *h, CUevent e) { memcpy(h, &e, sizeof e); return CUDA_SUCCESS; }
API CUresult cuIpcOpenEventHandle(CUevent *e, CUipcEventHandle h) { memcpy(e, &h, sizeof *e); return CUDA_SUCCESS; }
API CUresult cuEventDestroy_v2(CUevent e) { free(e); return CUDA_SUCCESS; }
API CUresult cuEventRecord(CUevent e, CUstream s)
{
	struct stream *st = stream_of(s);
	if (!st)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (st->capturing) {
		st->graph->nodes++;
		return CUDA_SUCCESS;
	}
	if (used_stream(s))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	int64_t now = stub_now(), done = atomic_load(&st->done);
	atomic_store(&((struct event *)e)->done, done > now ? done : now);
	return CUDA_SUCCESS;
}
static CUresult event_over(CUevent e) { return atomic_load(&((struct event *)e)->done) <= stub_now() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }
API CUresult cuEventQuery(CUevent e)
{
	CUresult r = unsafe_call();
	return r ? r : event_over(e);
}
API CUresult cuEventSynchronize(CUevent e)
{
	CUresult r = unsafe_call();
	if (r == CUDA_SUCCESS)
		until(atomic_load(&((struct event *)e)->done));
	return r;
}
API CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
	*ms = (float)((double)(atomic_load(&((struct event *)b)->done) - atomic_load(&((struct event *)a)->done)) / 1e6);
	return event_over(b);
}
API CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	int was = capture_mode;
	capture_mode = *mode;
	*mode = was;
	return CUDA_SUCCESS;
}

/* ---- launches and graphs ---- */

static CUresult launch(struct stub_kernel *k, void **params, CUstream s)
{
	struct stream *st = stream_of(s);
	int64_t now = stub_now(), done;

	if (!st)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (st->capturing && st->capture.spoilt)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (used_stream(s))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	if (st->capturing) {
		st->graph->nodes++;
		st->graph->ns += k->ns;
		if (k->body && stub_args) {
			struct work *w = &st->graph->work[st->graph->works++];
			w->body = k->body;
			for (int i = 0; i < stub_args; i++)
				memcpy(&w->args[i], params[i], 8);
		}
		return CUDA_SUCCESS;
	}
	if (k->body)
		k->body(params);
	if (k->meeting) {
		atomic_store(&stub_current()->meets, k);
		atomic_store(&stub_current()->meets_for, atomic_fetch_add(&k->meeting->launched[k->rank], 1) + 1);
	}
	atomic_fetch_add(&stub_launched, 1);
	done = atomic_load(&st->done);
	done = (done > now ? done : now) + k->ns;
	atomic_store(&st->done, done);
	if (stub_current() && done > atomic_load(&stub_current()->done))
		atomic_store(&stub_current()->done, done);
	return CUDA_SUCCESS;
}

API _Atomic uint64_t stub_launched;

API CUresult cuLaunch(CUfunction f) { return launch(f, NULL, NULL); }
API CUresult cuLaunchGrid(CUfunction f, int w, int h) { (void)w, (void)h; return launch(f, NULL, NULL); }
API CUresult cuLaunchGridAsync(CUfunction f, int w, int h, CUstream s) { (void)w, (void)h; return launch(f, NULL, s); }
API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, CUstream s, void **params, void **extra)
{
	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)sh, (void)extra;
	return launch(f, params, s);
}
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) { (void)extra; return launch(f, params, c->stream); }
API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, CUstream s, void **params)
{
	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)sh;
	return launch(f, params, s);
}
API CUresult cuLaunchCooperativeKernelMultiDevice(void *list, unsigned n, unsigned flags) { (void)list, (void)n, (void)flags; return CUDA_SUCCESS; }

static int blocking_capture(void)
{
	int any = 0;

	pthread_mutex_lock(&captures_lock);
	for (int i = 0; i < 32; i++)
		any |= captured[i] && forbids_legacy_stream(captured[i]);
	pthread_mutex_unlock(&captures_lock);
	return any;
}
API CUresult cuStreamIsCapturing(CUstream s, int *status)
{
	struct stream *st = stream_of(s);

	if ((uintptr_t)s <= CU_STREAM_LEGACY && blocking_capture())
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT; /* which spoils nothing */
	*status = st && st->capturing ? 1 + st->capture.spoilt : 0;
	return CUDA_SUCCESS;
}
API CUresult cuStreamBeginCapture_v2(CUstream s, int mode)
{
	struct stream *st = stream_of(s);
	if (!s || !st || st->capturing)
		return CUDA_ERROR_INVALID_VALUE;
	st->capturing = 1;
	st->graph = calloc(1, sizeof *st->graph);
	capture_begins(st, mode);
	return CUDA_SUCCESS;
}
API CUresult cuStreamBeginCapture(CUstream s) { return cuStreamBeginCapture_v2(s, 0); }
API CUresult cuStreamBeginCaptureToGraph(CUstream s, CUgraph g, const CUgraphNode *d, const void *e, size_t n, int mode)
{
	CUresult r = cuStreamBeginCapture_v2(s, mode);
	(void)d, (void)e, (void)n;
	if (r == CUDA_SUCCESS) {
		free(stream_of(s)->graph);
		stream_of(s)->graph = g;
	}
	return r;
}
API CUresult cuStreamEndCapture(CUstream s, CUgraph *g)
{
	struct stream *st = stream_of(s);
	if (!st || !st->capturing)
		return CUDA_ERROR_INVALID_VALUE;
	if (st->capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(st->capture.by, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	st->capturing = 0;
	if (capture_ends(st) || getenv("STUB_CAPTURE_FAILS")) {
		stub_graph_free(st->graph);
		*g = NULL;
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	*g = st->graph;
	return CUDA_SUCCESS;
}
API CUresult cuStreamGetCaptureInfo_v2(CUstream s, int *status, unsigned long long *id, CUgraph *g, const CUgraphNode **deps, size_t *n)
{
	struct stream *st = stream_of(s);
	(void)id, (void)deps, (void)n;
	*status = st && st->capturing;
	if (g)
		*g = st && st->capturing ? st->graph : NULL;
	return CUDA_SUCCESS;
}
API CUresult cuStreamUpdateCaptureDependencies(CUstream s, CUgraphNode *d, size_t n, unsigned f) { (void)s, (void)d, (void)n, (void)f; return CUDA_SUCCESS; }
API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream s, CUgraphNode *d, const void *e, size_t n, unsigned f) { (void)s, (void)d, (void)e, (void)n, (void)f; return CUDA_SUCCESS; }
static struct graph *stub_capture(CUstream s) { return stream_of(s) && stream_of(s)->capturing ? stream_of(s)->graph : NULL; }
/* ---- code: takes some memory, as the real one does ---- */

#define CODE_BYTES ((uint64_t)1 << 20)
struct code { size_t size; char text[]; }; /* what it was loaded from, if that was text */
static CUresult code_load(void **out, const char *image)
{
	size_t size = image && *image == '.' ? strlen(image) + 1 : 0;
	struct code *c;

	if (!stub_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!stub_take(stub_current()->dev, CODE_BYTES))
		return CUDA_ERROR_OUT_OF_MEMORY;
	c = malloc(sizeof *c + size);
	c->size = size;
	if (size)
		memcpy(c->text, image, size);
	*out = c;
	return CUDA_SUCCESS;
}
static CUresult code_unload(void *m) { free(m); stub_give(stub_current() ? stub_current()->dev : 0, CODE_BYTES); return CUDA_SUCCESS; }
API CUresult cuModuleLoad(CUmodule *m, const char *n) { (void)n; return code_load(m, NULL); }
API CUresult cuModuleLoadData(CUmodule *m, const void *i) { return code_load(m, i); }
API CUresult cuModuleLoadDataEx(CUmodule *m, const void *i, unsigned n, int *o, void **v) { (void)n, (void)o, (void)v; return code_load(m, i); }
API CUresult cuModuleLoadFatBinary(CUmodule *m, const void *i) { (void)i; return code_load(m, NULL); }
API CUresult cuModuleUnload(CUmodule m) { return code_unload(m); }
/* Every module of text has one variable: its text. */
API CUresult cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *bytes, CUmodule m, const char *name)
{
	struct code *c = m;

	if (strcmp(name, "text") || !c->size)
		return CUDA_ERROR_NOT_FOUND;
	*ptr = (CUdeviceptr)(uintptr_t)c->text;
	*bytes = c->size;
	return CUDA_SUCCESS;
}
API CUresult cuLibraryLoadData(CUlibrary *l, const void *c, int *j, void **jv, unsigned jn, int *o, void **v, unsigned n)
{
	(void)c, (void)j, (void)jv, (void)jn, (void)o, (void)v, (void)n;
	return code_load(l, NULL);
}
API CUresult cuLibraryLoadFromFile(CUlibrary *l, const char *c, int *j, void **jv, unsigned jn, int *o, void **v, unsigned n)
{
	(void)c, (void)j, (void)jv, (void)jn, (void)o, (void)v, (void)n;
	return code_load(l, NULL);
}
API CUresult cuLibraryUnload(CUlibrary l) { return code_unload(l); }

/* Kernels that every module has, with parameters that lie as a compiler would lay them. */
static void kernel_add(void **p)
{
	int64_t *to = *(int64_t **)p[0], *a = *(int64_t **)p[1];
	for (int i = 0; i < *(int *)p[2]; i++)
		to[i] += a[i];
}
static void kernel_store(void **p) { **(int64_t **)p[1] = *(char *)p[0] + *(short *)p[2]; }
static struct stub_kernel add_kernel = {1000, kernel_add}, store_kernel = {1000, kernel_store}, spin_kernel = {300000000, NULL}, no_kernel = {1000, NULL};
static const struct named { const char *name; struct stub_kernel *kernel; unsigned count, offset[3], size[3]; } named[] = {
	{"add", &add_kernel, 3, {0, 8, 16}, {8, 8, 4}},
	{"store", &store_kernel, 3, {0, 8, 16}, {1, 8, 2}},
	{"spin", &spin_kernel, 0, {0}, {0}},
	{"nop", &no_kernel, 3, {0, 8, 16}, {8, 8, 4}},
};
API CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
	(void)m;
	for (unsigned i = 0; i < sizeof named / sizeof *named; i++)
		if (!strcmp(named[i].name, name)) {
			*f = named[i].kernel;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}
API CUresult cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *size)
{
	for (unsigned i = 0; i < sizeof named / sizeof *named; i++)
		if (named[i].kernel == f && index < named[i].count) {
			*offset = named[i].offset[index];
			*size = named[i].size[index];
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGetErrorName(CUresult e, const char **name) { *name = e == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "unknown"; return CUDA_SUCCESS; }
API CUresult cuGetErrorString(CUresult e, const char **text) { *text = e == CUDA_ERROR_INVALID_VALUE ? "invalid argument" : "unknown"; return CUDA_SUCCESS; }
API CUresult cuDeviceGetName(char *name, int size, CUdevice d) { snprintf(name, (size_t)size, "Stub %d", d); return CUDA_SUCCESS; }

/* ---- checkpoint: by pid, in the order lock, checkpoint, restore, unlock ---- */

static int checkpoint_state, checkpoint_pid;
static CUresult checkpoint_step(int pid, int from, int to)
{
	if (checkpoint_state != from || (from && pid != checkpoint_pid))
		return CUDA_ERROR_INVALID_VALUE;
	checkpoint_pid = pid;
	checkpoint_state = to;
	return CUDA_SUCCESS;
}
API CUresult cuCheckpointProcessLock(int pid, void *a) { (void)a; return checkpoint_step(pid, 0, 1); }
API CUresult cuCheckpointProcessCheckpoint(int pid, void *a) { (void)a; return checkpoint_step(pid, 1, 2); }
API CUresult cuCheckpointProcessRestore(int pid, void *a) { (void)a; return checkpoint_step(pid, 2, 1); }
API CUresult cuCheckpointProcessUnlock(int pid, void *a) { (void)a; return checkpoint_step(pid, 1, 0); }

CUresult stub_get_proc_address(const char *symbol, void **pfn, int version, uint64_t flags, int *status);
API CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
	return stub_get_proc_address(symbol, pfn, version, flags, status);
}
API CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags)
{
	return stub_get_proc_address(symbol, pfn, version, flags, NULL);
}

#include "stub_memory.c"
#include "stub_arrays.c"
#include "stub_graphs.c"

/* ---- the second names of functions, and looking them up ---- */

#define ROW(symbol, base, since, per_thread) extern char address_##symbol[] __asm__(#symbol);
#define ALIAS(symbol, name) __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ": jmp " #symbol "\n");
#include "stub_rows.h"
#undef ROW
#undef ALIAS

static const struct { const char *symbol, *base; int since, per_thread; void *address; } rows[] = {
#define ROW(symbol, base, since, per_thread) {#symbol, #base, since, per_thread, address_##symbol},
#define ALIAS(symbol, name)
#include "stub_rows.h"
};

CUresult stub_get_proc_address(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
	int best = -1, per_thread = (flags & CU_GET_PROC_PER_THREAD) != 0;

	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
		if (!strcmp(rows[i].base, symbol) && rows[i].since <= version && rows[i].per_thread <= per_thread &&
		    (best < 0 || rows[i].since > rows[best].since || (rows[i].since == rows[best].since && rows[i].per_thread > rows[best].per_thread)))
			best = (int)i;
	*pfn = best >= 0 ? rows[best].address : NULL;
	if (!strcmp(symbol, "cuGraphInstantiate") && version >= 12000)
		*pfn = (void *)cuGraphInstantiateWithFlags; /* as the real one has it */
	if (status)
		*status = *pfn ? 0 : 1;
	return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
