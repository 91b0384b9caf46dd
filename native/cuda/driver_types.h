/* The part of the CUDA driver API and of NVML that this library speaks, declared here so that it builds without CUDA. */
#ifndef ELASTIC_DRIVER_H
#define ELASTIC_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemHandle;
typedef void *CUcontext;
typedef void *CUstream;
typedef void *CUevent;
typedef void *CUfunction;
typedef void *CUmodule;
typedef void *CUlibrary;
typedef void *CUarray;
typedef void *CUmipmappedArray;
typedef void *CUmemPool;
typedef void *CUgraph;
typedef void *CUgraphExec;
typedef void *CUgraphNode;
typedef void *CUuserObject;
typedef void *CUexternalMemory;
typedef void *CUgraphicsResource;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_NOT_PERMITTED = 800,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

enum {
	CU_STREAM_LEGACY = 1,
	CU_STREAM_PER_THREAD = 2,
	CU_STREAM_NON_BLOCKING = 1,
	CU_STREAM_CAPTURE_STATUS_NONE = 0,
	CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
	CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
	CU_MEM_LOCATION_DEVICE = 1,
	CU_MEM_LOCATION_HOST = 2,
	CU_MEM_ALLOCATION_PINNED = 1,
	CU_MEM_ACCESS_READWRITE = 3,
	CU_MEMPOOL_THRESHOLD = 4,
	CU_MEMPOOL_RESERVED_CURRENT = 5,
	CU_MEMPOOL_RESERVED_HIGH = 6,
	CU_MEMPOOL_USED_CURRENT = 7,
	CU_MEMPOOL_USED_HIGH = 8,
	CU_EVENT_NO_TIMING = 2,
	CU_GRAPH_MEM_RESERVED_CURRENT = 2,
	CU_GRAPH_NODE_EMPTY = 5,
	CU_GRAPH_NODE_MEM_ALLOC = 10,
	CU_GRAPH_NODE_MEM_FREE = 11,
	CU_GRAPH_NODE_CONDITIONAL = 13,
	CU_GRAPH_AUTO_FREE_ON_LAUNCH = 1,
	CU_GRAPH_USER_OBJECT_MOVE = 1,
	CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1,
	CU_GET_PROC_PER_THREAD = 2,
	CU_DEVICE_ATTRIBUTE_POSIX_FD = 103,
	CU_DEVICE_ATTRIBUTE_MPS = 133,
	CU_MEM_HANDLE_POSIX_FD = 1,
	CU_IPC_LAZY_PEER_ACCESS = 1,
	CU_MEM_CREATE_USAGE_TILE_POOL = 1,
	CU_ARRAY_LAYERED = 0x01, /* flags of arrays */
	CU_ARRAY_SURFACE = 0x02,
	CU_ARRAY_CUBEMAP = 0x04,
	CU_ARRAY_GATHER = 0x08,
	CU_ARRAY_SPARSE = 0x40,
	CU_ARRAY_DEFERRED = 0x80,
	CU_MEMORY_HOST = 1,
	CU_MEMORY_DEVICE = 2,
	CU_MEMORY_ARRAY = 3,
	CU_RESOURCE_ARRAY = 0,
	CU_RESOURCE_MIPMAPPED = 1,
	CU_ARRAY_MAP = 1,
	CU_ARRAY_UNMAP = 2,
};

typedef struct { unsigned char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef struct { char reserved[64]; } CUipcEventHandle;
typedef struct { char reserved[64]; } CUmemPoolPtrExportData;

typedef struct { size_t width, height; int format; unsigned channels; } CUarrayDesc;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } CUarray3DDesc;

typedef struct { unsigned width, height, depth; int format; unsigned channels, flags; } CUarray3DDescV1; /* before CUDA 3.2 */
typedef struct { size_t size, alignment; unsigned reserved[4]; } CUarrayMemory;
typedef struct {
	int resource_type;
	void *resource;
	int subresource_type;
	unsigned long long subresource[4];
	int operation, handle_type;
	CUmemHandle handle;
	unsigned long long offset;
	unsigned device_mask, flags, reserved[2];
} CUarrayMap;
typedef struct { size_t x, y, z, level; int type; void *host; CUdeviceptr device; CUarray array; void *reserved; size_t pitch, height; } CUcopyEnd;
typedef struct { CUcopyEnd src, dst; size_t width, height, depth; } CUcopy3D;
typedef struct { size_t x, y; int type; void *host; CUdeviceptr device; CUarray array; size_t pitch; } CUcopyEnd2D;
typedef struct { CUcopyEnd2D src, dst; size_t width, height; } CUcopy2D;

typedef struct { int type, id; } CUmemLocation;
typedef struct {
	int type, handle_types;
	CUmemLocation location;
	void *win32;
	unsigned char compression, rdma;
	unsigned short usage;
	unsigned char reserved[4];
} CUmemProp;
typedef struct { CUmemLocation location; int flags; } CUmemAccess;
typedef struct {
	int type, handle_types;
	CUmemLocation location;
	void *win32;
	size_t max_size;
	unsigned short usage;
	unsigned char reserved[54];
} CUmemPoolProps;

typedef struct { int id; char pad[4]; unsigned char value[64]; } CUlaunchAttribute;
typedef struct {
	unsigned grid[3], block[3], shared_bytes;
	CUstream stream;
	CUlaunchAttribute *attrs;
	unsigned num_attrs;
} CUlaunchConfig;

typedef struct {
	CUmemPoolProps pool;
	const CUmemAccess *access;
	size_t access_count, bytes;
	CUdeviceptr ptr;
} CUmemAllocNode;
typedef struct {
	int type, reserved0[3];
	union {
		long long reserved1[29];
		CUmemAllocNode alloc;
		CUdeviceptr freed;
		struct { unsigned long long handle; int kind; unsigned size; CUgraph *bodies; } conditional;
	};
	long long reserved2;
} CUgraphNodeParams;

typedef struct {
	int type;
	union { int fd; struct { void *handle; const void *name; } win32; const void *object; } handle;
	unsigned long long size;
	unsigned flags, reserved[16];
} CUexternalMemoryDesc;

/* NVML */
typedef int nvmlReturn;
typedef void *nvmlDevice;
enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_VERSION_MISMATCH = 18, /* of the library and what it speaks to */
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999,
};
typedef struct { unsigned long long total, free, used; } nvmlMemory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemoryV2;
typedef struct { unsigned gpu, memory; } nvmlUtilization;
typedef struct { char bus_id_legacy[16]; unsigned domain, bus, device, pci_device, pci_subsystem; char bus_id[32]; } nvmlPciInfo;
typedef struct { unsigned pid; unsigned long long used; } nvmlProcessV1;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } nvmlProcessV2;

#endif
