/* What the tests of calls have in common: the functions as a program sees them, and the ways to take memory. */
#ifndef CALLS_H
#define CALLS_H
#include <pthread.h>
#include <sys/mman.h>
#include "check.h"

/* Declared here as a program would see them. */
CUresult cuInit(unsigned);
#define ENTRY(name) extern __typeof__(*(fn_##name)0) name
ENTRY(cuMemAlloc_v2); ENTRY(cuMemAllocPitch_v2); ENTRY(cuMemAllocManaged); ENTRY(cuMemFree_v2); ENTRY(cuMemAlloc); ENTRY(cuMemGetInfo_v2);
ENTRY(cuMemGetInfo); ENTRY(cuDeviceTotalMem_v2); ENTRY(cuDevicePrimaryCtxRetain); ENTRY(cuDevicePrimaryCtxRelease_v2); ENTRY(cuDevicePrimaryCtxReset_v2);
ENTRY(cuCtxCreate_v2); ENTRY(cuCtxCreate_v4); ENTRY(cuCtxDestroy_v2); ENTRY(cuArrayCreate_v2); ENTRY(cuArray3DCreate_v2); ENTRY(cuArrayDestroy);
ENTRY(cuMipmappedArrayCreate); ENTRY(cuMipmappedArrayDestroy); ENTRY(cuMipmappedArrayGetLevel); ENTRY(cuArray3DGetDescriptor_v2); ENTRY(cuArray3DGetDescriptor);
ENTRY(cuArrayGetSparseProperties); ENTRY(cuMipmappedArrayGetSparseProperties); ENTRY(cuArrayGetMemoryRequirements); ENTRY(cuMipmappedArrayGetMemoryRequirements); ENTRY(cuMemcpy3D_v2); ENTRY(cuMemcpyHtoA_v2); ENTRY(cuMemcpyAtoH_v2); ENTRY(cuMemAllocAsync); ENTRY(cuMemAllocAsync_ptsz); ENTRY(cuMemFreeAsync);
ENTRY(cuMemAllocFromPoolAsync); ENTRY(cuMemPoolCreate); ENTRY(cuMemPoolDestroy); ENTRY(cuMemPoolTrimTo); ENTRY(cuMemPoolGetAttribute); ENTRY(cuMemPoolSetAttribute); ENTRY(cuMemFreeAsync_ptsz); ENTRY(cuMemCreate); ENTRY(cuMemRelease);
ENTRY(cuMemMap); ENTRY(cuMemUnmap); ENTRY(cuMemSetAccess); ENTRY(cuMemGetAllocationPropertiesFromHandle); ENTRY(cuMemMapArrayAsync); ENTRY(cuMulticastBindMem); ENTRY(cuMemRetainAllocationHandle); ENTRY(cuMemImportFromShareableHandle); ENTRY(cuMemExportToShareableHandle);
ENTRY(cuIpcGetMemHandle); ENTRY(cuIpcOpenMemHandle_v2); ENTRY(cuIpcCloseMemHandle); ENTRY(cuImportExternalMemory); ENTRY(cuDestroyExternalMemory);
ENTRY(cuGraphAddMemAllocNode); ENTRY(cuGraphAddMemFreeNode); ENTRY(cuGraphMemAllocNodeGetParams); ENTRY(cuGraphMemFreeNodeGetParams); ENTRY(cuGraphNodeGetType);
ENTRY(cuGraphDestroyNode); ENTRY(cuGraphClone); ENTRY(cuGraphExecUpdate_v2); ENTRY(cuGraphInstantiateWithParams); ENTRY(cuStreamUpdateCaptureDependencies_v2); ENTRY(cuStreamBeginCaptureToGraph); ENTRY(cuGraphAddNode_v2); ENTRY(cuGraphAddNode); ENTRY(cuGraphLaunch); ENTRY(cuGraphExecDestroy); ENTRY(cuGraphInstantiateWithFlags); ENTRY(cuGraphDestroy); ENTRY(cuDeviceGraphMemTrim);
ENTRY(cuCtxSynchronize); ENTRY(cuStreamSynchronize); ENTRY(cuStreamSynchronize_ptsz); ENTRY(cuEventSynchronize);
ENTRY(cuLaunchKernel); ENTRY(cuLaunchKernel_ptsz); ENTRY(cuLaunchKernelEx); ENTRY(cuLaunchCooperativeKernel); ENTRY(cuStreamBeginCapture_v2); ENTRY(cuStreamEndCapture);
ENTRY(cuStreamDestroy_v2); ENTRY(cuGraphAddMemsetNode); ENTRY(cuGraphMemsetNodeSetParams); ENTRY(cuStreamWriteValue32_v2); ENTRY(cuMemcpyHtoD_v2); ENTRY(cuMemcpyDtoH_v2); ENTRY(cuMemsetD8_v2); ENTRY(cuMemsetD32Async); ENTRY(cuMemGetAddressRange_v2);
ENTRY(cuModuleLoadData); ENTRY(cuModuleUnload); ENTRY(cuGetProcAddress_v2); ENTRY(cuGetProcAddress); ENTRY(cuGraphicsGLRegisterBuffer); ENTRY(cuMemcpyDtoDAsync_v2);
ENTRY(nvmlDeviceGetMemoryInfo); ENTRY(nvmlDeviceGetMemoryInfo_v2); ENTRY(nvmlDeviceGetComputeRunningProcesses_v3); ENTRY(nvmlDeviceGetComputeRunningProcesses);

/* The driver's functions that are not in the table. */
static void *driver(const char *name)
{
	void *p = real_dlsym(real_dlopen("libcuda.so.1", 1), name);
	CHECK(p);
	return p;
}

#define CONTEXT (64 * MiB)
#define LIMIT (512 * MiB)
static CUcontext ctx;

static void begin(const char *extra, const char *device)
{
	check_limits(extra, device);
	EQUAL(cuInit(0), 0);
	EQUAL(cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
}
static void begin_512(void) { begin("", "device * memory 536870912"); }
static void begin_swap(void) { begin("swap on\n", "device * memory 536870912"); }

static uint64_t used(void) { return container_used(session.container, 0); }
static size_t free_shown(void)
{
	size_t f, t;
	EQUAL(cuMemGetInfo_v2(&f, &t), 0);
	EQUAL(t, LIMIT);
	return f;
}

static const CUmemAccess all_of_it = {{CU_MEM_LOCATION_DEVICE, 0}, CU_MEM_ACCESS_READWRITE};
static __attribute__((unused)) CUdeviceptr reserve(uint64_t size)
{
	CUdeviceptr p;

	EQUAL(real_cuMemAddressReserve(&p, size, 0, 0, 0), 0);
	return p;
}

/* A word in each page of 4 KiB, by which it is known again. */
static __attribute__((unused)) void fill(CUdeviceptr p, uint64_t n, unsigned seed)
{
	for (uint64_t i = 0; i < n; i += 4096)
		*(unsigned *)(uintptr_t)(p + i) = seed + (unsigned)i;
}
static __attribute__((unused)) bool filled(CUdeviceptr p, uint64_t n, unsigned seed)
{
	for (uint64_t i = 0; i < n; i += 4096)
		if (*(unsigned *)(uintptr_t)(p + i) != seed + (unsigned)i)
			return false;
	return true;
}

/* One way to take and give back a step of memory. */
struct way { const char *name; CUresult (*take)(uint64_t bytes, uint64_t *key); CUresult (*give)(uint64_t key); };

static CUmemPool own_pool;
static __attribute__((unused)) CUgraph graph;
static __attribute__((unused)) CUstream stream;

static CUresult take_plain(uint64_t n, uint64_t *k) { CUdeviceptr p = 0; CUresult r = cuMemAlloc_v2(&p, n); *k = p; return r; }
static CUresult give_plain(uint64_t k) { return cuMemFree_v2(k); }
static CUresult take_pitch(uint64_t n, uint64_t *k) { CUdeviceptr p = 0; size_t pitch; CUresult r = cuMemAllocPitch_v2(&p, &pitch, 4096, n / 4096, 16); *k = p; return r; }
static CUresult take_managed(uint64_t n, uint64_t *k) { CUdeviceptr p = 0; CUresult r = cuMemAllocManaged(&p, n, 1); *k = p; return r; }
static CUresult take_async(uint64_t n, uint64_t *k) { CUdeviceptr p = 0; CUresult r = cuMemAllocAsync(&p, n, NULL); *k = p; return r; }
static CUresult take_async_thread(uint64_t n, uint64_t *k) { CUdeviceptr p = 0; CUresult r = cuMemAllocAsync_ptsz(&p, n, NULL); *k = p; return r; }
static CUresult give_async(uint64_t k) { CUmemPool d; CUresult r = cuMemFreeAsync(k, NULL); real_cuDeviceGetMemPool(&d, 0); cuMemPoolTrimTo(d, 0); return r; }
static CUresult take_pool(uint64_t n, uint64_t *k)
{
	CUmemPoolProps props = {.type = 1, .location = {CU_MEM_LOCATION_DEVICE, 0}};
	CUdeviceptr p = 0;
	if (!own_pool)
		EQUAL(cuMemPoolCreate(&own_pool, &props), 0);
	CUresult r = cuMemAllocFromPoolAsync(&p, n, own_pool, NULL);
	*k = p;
	return r;
}
static CUresult give_pool(uint64_t k) { CUresult r = cuMemFreeAsync(k, NULL); cuMemPoolTrimTo(own_pool, 0); return r; }
static const CUmemProp on_device = {.type = 1, .location = {CU_MEM_LOCATION_DEVICE, 0}};
static CUresult take_handle(uint64_t n, uint64_t *k) { CUmemHandle h = 0; CUresult r = cuMemCreate(&h, n, &on_device, 0); *k = h; return r; }
static CUresult give_handle(uint64_t k) { return cuMemRelease(k); }
static CUresult take_mapped(uint64_t n, uint64_t *k)
{
	CUmemHandle h;
	CUdeviceptr p;
	CUresult r = cuMemCreate(&h, n, &on_device, 0);
	if (r)
		return r;
	EQUAL(real_cuMemAddressReserve(&p, n, 0, 0, 0), 0);
	EQUAL(cuMemMap(p, n, 0, h, 0), 0);
	EQUAL(cuMemRelease(h), 0); /* the mapping holds on to it */
	*k = p;
	return r;
}
static CUresult give_mapped(uint64_t k) { return cuMemUnmap(k, 32 * MiB); }
static CUresult take_array(uint64_t n, uint64_t *k) { CUarrayDesc d = {1024, n / 4096, 0x20, 1}; CUarray a = NULL; CUresult r = cuArrayCreate_v2(&a, &d); *k = (uintptr_t)a; return r; }
static CUresult give_array(uint64_t k) { return cuArrayDestroy((CUarray)(uintptr_t)k); }
static CUresult take_array3(uint64_t n, uint64_t *k) { CUarray3DDesc d = {1024, 64, n / 4096 / 64, 0x20, 1, 0}; CUarray a = NULL; CUresult r = cuArray3DCreate_v2(&a, &d); *k = (uintptr_t)a; return r; }
static CUresult take_mips(uint64_t n, uint64_t *k) { CUarray3DDesc d = {1024, n / 4096, 0, 0x20, 1, 0}; CUmipmappedArray a = NULL; CUresult r = cuMipmappedArrayCreate(&a, &d, 1); *k = (uintptr_t)a; return r; }
static CUresult give_mips(uint64_t k) { return cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)k); }
static CUresult take_external(uint64_t n, uint64_t *k) { CUexternalMemoryDesc d = {.type = 1, .size = n}; CUexternalMemory m = NULL; CUresult r = cuImportExternalMemory(&m, &d); *k = (uintptr_t)m; return r; }
static CUresult give_external(uint64_t k) { return cuDestroyExternalMemory((CUexternalMemory)(uintptr_t)k); }

static const struct way ways[] = {
	{"cuMemAlloc", take_plain, give_plain}, {"cuMemAllocPitch", take_pitch, give_plain}, {"cuMemAllocManaged", take_managed, give_plain},
	{"cuMemAllocAsync", take_async, give_async}, {"cuMemAllocAsync_ptsz", take_async_thread, give_async}, {"cuMemAllocFromPoolAsync", take_pool, give_pool},
	{"cuMemCreate", take_handle, give_handle}, {"cuMemMap", take_mapped, give_mapped}, {"cuArrayCreate", take_array, give_array},
	{"cuArray3DCreate", take_array3, give_array}, {"cuMipmappedArrayCreate", take_mips, give_mips}, {"cuImportExternalMemory", take_external, give_external},
};
#define WAYS (sizeof ways / sizeof *ways)

#endif
