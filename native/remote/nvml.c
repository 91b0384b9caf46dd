/*
 * libnvidia-ml.so.1 of programs whose card is elsewhere: it asks the NVML beside the card, in the session that the program's
 * libcuda.so.1 has or begins. So a process has one session and one process at the server, whichever library it uses.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>
#include "client.h"
#include "log.h"
#include "nvml.h"

/* ---- the session ---- */

static _Atomic int users; /* of nvmlInit without nvmlShutdown */

typedef CUresult (*call_fn)(uint64_t, unsigned, const void *, size_t, void *, size_t);

static call_fn session(void)
{
	static _Atomic(call_fn) known;
	call_fn call = atomic_load(&known);
	void *lib;

	if (call)
		return call;
	lib = dlopen("libcuda.so.1", RTLD_NOW); /* never closed: it has a thread */
	call = lib ? (call_fn)dlsym(lib, "elastic_remote_call") : NULL;
	if (!call)
		log_error("remote card: the program finds another libcuda.so.1 than the one that was mounted, or none: no NVML");
	atomic_store(&known, call);
	return call;
}

static nvmlReturn ask(unsigned call, const void *args, size_t size, void *back, size_t expect)
{
	call_fn remote = session();
	int32_t r;

	switch (remote ? remote(REMOTE_VERSION, call, args, size, back, expect) : CUDA_ERROR_NOT_FOUND) {
	case CUDA_SUCCESS:
		memcpy(&r, back, sizeof r);
		return r;
	case CUDA_ERROR_NOT_FOUND:
		return NVML_ERROR_LIBRARY_NOT_FOUND;
	case CUDA_ERROR_NO_DEVICE:
		return NVML_ERROR_DRIVER_NOT_LOADED;
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
		return NVML_ERROR_GPU_IS_LOST;
	case CUDA_ERROR_NOT_SUPPORTED:
		return NVML_ERROR_VERSION_MISMATCH;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return NVML_ERROR_MEMORY;
	}
	return NVML_ERROR_UNKNOWN;
}

nvmlReturn nvml_ask(unsigned call, const void *args, size_t size, void *back, size_t expect)
{
	return atomic_load(&users) ? ask(call, args, size, back, expect) : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn nvml_text(char *back, char *text, unsigned size)
{
	size_t n;

	back[MOST_NAME - 1] = 0;
	n = strlen(back) + 1;
	if (n > size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(text, back, n);
	return NVML_SUCCESS;
}

struct cards { int32_t result, count; };

nvmlReturn nvmlInit_v2(void)
{
	struct cards back;
	nvmlReturn r = ask(CALL_nvml_cards, NULL, 0, &back, sizeof back);

	if (r == NVML_SUCCESS)
		atomic_fetch_add(&users, 1);
	return r;
}
nvmlReturn nvmlInit(void) { return nvmlInit_v2(); }
nvmlReturn nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }

/* The session stays: who asks again has it at once, and the program's driver may use it. */
nvmlReturn nvmlShutdown(void)
{
	int n = atomic_load(&users);

	while (n > 0 && !atomic_compare_exchange_weak(&users, &n, n - 1))
		;
	return n > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

const char *nvmlErrorString(nvmlReturn r)
{
	switch (r) {
	case NVML_SUCCESS: return "success";
	case NVML_ERROR_UNINITIALIZED: return "nvmlInit was not called";
	case NVML_ERROR_INVALID_ARGUMENT: return "invalid argument";
	case NVML_ERROR_NOT_SUPPORTED: return "not supported";
	case NVML_ERROR_NOT_FOUND: return "not found";
	case NVML_ERROR_INSUFFICIENT_SIZE: return "insufficient size";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "no connection to the server of the remote card";
	case NVML_ERROR_LIBRARY_NOT_FOUND: return "a library of the driver was not found";
	case NVML_ERROR_FUNCTION_NOT_FOUND: return "function not found";
	case NVML_ERROR_GPU_IS_LOST: return "the remote card is lost";
	case NVML_ERROR_VERSION_MISMATCH: return "libcuda.so.1 and libnvidia-ml.so.1 are of different versions";
	case NVML_ERROR_MEMORY: return "out of memory";
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "unknown version of an argument";
	}
	return "unknown error";
}

/* ---- cards: those that the driver has, in its order ---- */

static char cards[MAX_DEVICES]; /* their addresses are the handles */

int32_t nvml_number(nvmlDevice dev)
{
	for (int32_t i = 0; i < MAX_DEVICES; i++)
		if (dev == &cards[i])
			return i;
	return -1;
}

nvmlReturn nvmlDeviceGetCount_v2(unsigned *count)
{
	struct cards back;
	nvmlReturn r = count ? nvml_ask(CALL_nvml_cards, NULL, 0, &back, sizeof back) : NVML_ERROR_INVALID_ARGUMENT;

	if (r == NVML_SUCCESS)
		*count = back.count < 0 ? 0 : back.count < MAX_DEVICES ? (unsigned)back.count : MAX_DEVICES;
	return r;
}
nvmlReturn nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice *dev)
{
	unsigned count = 0;
	nvmlReturn r = dev ? nvmlDeviceGetCount_v2(&count) : NVML_ERROR_INVALID_ARGUMENT;

	if (r == NVML_SUCCESS && index >= count)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*dev = &cards[index];
	return r;
}
nvmlReturn nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice *dev) { return nvmlDeviceGetHandleByIndex_v2(index, dev); }

nvmlReturn nvmlDeviceGetIndex(nvmlDevice dev, unsigned *index)
{
	nvmlDevice same;
	nvmlReturn r = index ? nvmlDeviceGetHandleByIndex_v2((unsigned)nvml_number(dev), &same) : NVML_ERROR_INVALID_ARGUMENT;

	if (r == NVML_SUCCESS)
		*index = (unsigned)nvml_number(dev);
	return r;
}

/* The card that is the one meant. */
static nvmlReturn find(nvmlReturn (*is)(nvmlDevice, const void *, bool *), const void *meant, nvmlDevice *dev)
{
	unsigned count = 0;
	nvmlReturn r = nvmlDeviceGetCount_v2(&count);
	bool found = false;

	for (unsigned i = 0; r == NVML_SUCCESS && i < count; i++) {
		r = is(&cards[i], meant, &found);
		if (found) {
			*dev = &cards[i];
			return r;
		}
	}
	return r == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : r;
}

static nvmlReturn has_uuid(nvmlDevice dev, const void *meant, bool *yes)
{
	char uuid[96];
	nvmlReturn r = nvmlDeviceGetUUID(dev, uuid, sizeof uuid);
	*yes = r == NVML_SUCCESS && !strcmp(uuid, meant);
	return r;
}

nvmlReturn nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *dev)
{
	return uuid && dev ? find(has_uuid, uuid, dev) : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn has_place(nvmlDevice dev, const void *meant, bool *yes)
{
	const unsigned *place = meant;
	nvmlPciInfo pci;
	nvmlReturn r = nvmlDeviceGetPciInfo_v3(dev, &pci);
	*yes = r == NVML_SUCCESS && pci.domain == place[0] && pci.bus == place[1] && pci.device == place[2];
	return r;
}

/* With a domain of four or eight digits, or with none. */
nvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice *dev)
{
	unsigned place[3] = {0}, function = 0;

	if (!id || !dev)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (sscanf(id, "%8x:%2x:%2x.%1x", &place[0], &place[1], &place[2], &function) != 4) {
		place[0] = 0;
		if (sscanf(id, "%2x:%2x.%1x", &place[1], &place[2], &function) != 3)
			return NVML_ERROR_INVALID_ARGUMENT;
	}
	return function ? NVML_ERROR_NOT_FOUND : find(has_place, place, dev);
}
nvmlReturn nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice *dev) { return nvmlDeviceGetHandleByPciBusId_v2(id, dev); }

/* ---- what the program has on a card ---- */

/* Of a share nothing is reserved. The version says how large the struct is that the program has. */
nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice dev, nvmlMemoryV2 *memory)
{
	nvmlMemory m;
	nvmlReturn r;

	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memory->version != (sizeof *memory | 2 << 24))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	r = nvmlDeviceGetMemoryInfo(dev, &m);
	if (r == NVML_SUCCESS)
		*memory = (nvmlMemoryV2){memory->version, m.total, 0, m.free, m.used};
	return r;
}

/* Of the processes on the card the one that asks: the server knows the others by numbers that mean nothing here. */
nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice dev, unsigned *count, nvmlProcessV2 *infos)
{
	struct __attribute__((packed)) { int32_t result; uint64_t bytes; } back;
	int32_t number = nvml_number(dev);
	unsigned capacity = count ? *count : 0;
	nvmlReturn r = count ? nvml_ask(CALL_nvml_own_bytes, &number, sizeof number, &back, sizeof back) : NVML_ERROR_INVALID_ARGUMENT;

	if (r != NVML_SUCCESS)
		return r;
	*count = back.bytes > 0;
	if (*count > capacity)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	if (*count && !infos)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (*count)
		infos[0] = (nvmlProcessV2){(unsigned)getpid(), back.bytes, UINT32_MAX, UINT32_MAX};
	return NVML_SUCCESS;
}
nvmlReturn nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice dev, unsigned *count, nvmlProcessV2 *infos)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(dev, count, infos);
}
nvmlReturn nvmlDeviceGetComputeRunningProcesses(nvmlDevice dev, unsigned *count, nvmlProcessV1 *infos)
{
	nvmlProcessV2 own = {0};
	nvmlReturn r = nvmlDeviceGetComputeRunningProcesses_v3(dev, count, infos ? &own : NULL);

	if (r == NVML_SUCCESS && *count)
		infos[0] = (nvmlProcessV1){own.pid, own.used};
	return r;
}
