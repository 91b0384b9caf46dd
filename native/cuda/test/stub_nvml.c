/* libnvidia-ml.so.1 for tests: the whole card and all its processes, as the real one tells them. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "stub.h"

#define API __attribute__((visibility("default")))

API nvmlReturn nvmlInit_v2(void) { return NVML_SUCCESS; }

static int index_of(nvmlDevice dev) { return (int)(intptr_t)dev - 1; }

API nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice *dev)
{
	*dev = (nvmlDevice)(intptr_t)(i + 1);
	return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetUUID(nvmlDevice dev, char *uuid, unsigned length)
{
	unsigned char b[16];
	stub_uuid(index_of(dev), b);
	snprintf(uuid, length, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4],
		b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *dev)
{
	char mine[96];
	for (int i = 0; i < stub_device_count(); i++) {
		nvmlDeviceGetHandleByIndex_v2((unsigned)i, dev);
		nvmlDeviceGetUUID(*dev, mine, sizeof mine);
		if (!strcmp(mine, uuid))
			return NVML_SUCCESS;
	}
	return 6;
}

API nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice dev, nvmlMemory *m)
{
	m->total = stub_card_size();
	m->used = stub_card_used(index_of(dev));
	m->free = m->total - m->used;
	return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice dev, nvmlMemoryV2 *m)
{
	nvmlMemory one;
	nvmlDeviceGetMemoryInfo(dev, &one);
	m->total = one.total;
	m->used = one.used;
	m->free = one.free;
	m->reserved = 0;
	return NVML_SUCCESS;
}

static nvmlReturn list(nvmlDevice dev, int mps, unsigned *count, nvmlProcessV2 *infos)
{
	struct stub_card *c = stub_card();
	unsigned n = 0, capacity = *count;

	for (int i = 0; i < STUB_PROCESSES; i++) {
		uint64_t used = atomic_load(&c->used[i][index_of(dev)]);
		if (!atomic_load(&c->pid[i]) || !used || atomic_load(&c->mps[i]) != mps)
			continue;
		if (n < capacity)
			infos[n] = (nvmlProcessV2){(unsigned)atomic_load(&c->pid[i]), used, 0, 0};
		n++;
	}
	*count = n;
	return n > capacity ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice dev, unsigned *count, nvmlProcessV2 *infos) { return list(dev, 0, count, infos); }
API nvmlReturn nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice dev, unsigned *count, nvmlProcessV2 *infos) { return list(dev, 1, count, infos); }

API nvmlReturn nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice dev, unsigned *count, nvmlProcessV2 *infos)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(dev, count, infos);
}

API nvmlReturn nvmlDeviceGetComputeRunningProcesses(nvmlDevice dev, unsigned *count, nvmlProcessV1 *infos)
{
	nvmlProcessV2 all[STUB_PROCESSES];
	unsigned n = STUB_PROCESSES, capacity = *count;
	nvmlDeviceGetComputeRunningProcesses_v3(dev, &n, all);
	for (unsigned i = 0; i < n && i < capacity; i++)
		infos[i] = (nvmlProcessV1){all[i].pid, all[i].used};
	*count = n;
	return n > capacity ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* A card that draws 100 W of 700, always. */
API nvmlReturn nvmlDeviceGetTotalEnergyConsumption(nvmlDevice dev, unsigned long long *mj)
{
	struct timespec t;
	(void)dev;
	clock_gettime(CLOCK_MONOTONIC, &t);
	*mj = (unsigned long long)t.tv_sec * 100000 + (unsigned long long)t.tv_nsec / 10000;
	return NVML_SUCCESS;
}
API nvmlReturn nvmlDeviceGetEnforcedPowerLimit(nvmlDevice dev, unsigned *mw) { (void)dev; *mw = 700000; return NVML_SUCCESS; }

/* No graphics on this card, and nobody who asks for clients of MPS the old way. */
#define NONE(name, type) API nvmlReturn name(nvmlDevice dev, unsigned *count, type *infos) { (void)dev, (void)infos; *count = 0; return NVML_SUCCESS; }
NONE(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessV1)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessV2)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessV2)
NONE(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessV1)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessV2)
