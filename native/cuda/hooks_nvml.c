/* Hooks of NVML: the card as the container's share of it, and the container's own processes. */
#include "driver_symbols.h"
#include "handlers.h"
#include "session.h"

/* The grant for a card that NVML speaks of; false if there is none to read. */
static bool grant(nvmlDevice dev, struct device_limit *g, int *index)
{
	struct limits l;
	char uuid[96] = "";

	if (!real_nvmlDeviceGetUUID || real_nvmlDeviceGetUUID(dev, uuid, sizeof uuid) != NVML_SUCCESS || !session_view(&l))
		return false;
	*g = *limits_for(&l, uuid);
	*index = container_device(session.container, uuid);
	return *index >= 0;
}

static void share_of(nvmlDevice dev, unsigned long long *total, unsigned long long *free, unsigned long long *used)
{
	struct device_limit g;
	int index;

	if (!grant(dev, &g, &index)) {
		*total = *free = *used = 0;
		return;
	}
	container_reap(session.container);
	if (g.memory < *total || atomic_load(&session.oversubscribe))
		*total = g.memory;
	*used = container_used(session.container, index);
	*free = *used < *total ? *total - *used : 0;
}

nvmlReturn on_nvmlDeviceGetMemoryInfo(fn_nvmlDeviceGetMemoryInfo real, nvmlDevice dev, nvmlMemory *m)
{
	nvmlReturn r = real(dev, m);
	if (r == NVML_SUCCESS)
		share_of(dev, &m->total, &m->free, &m->used);
	return r;
}

nvmlReturn on_nvmlDeviceGetMemoryInfo_v2(fn_nvmlDeviceGetMemoryInfo_v2 real, nvmlDevice dev, nvmlMemoryV2 *m)
{
	nvmlReturn r = real(dev, m);
	if (r == NVML_SUCCESS) {
		share_of(dev, &m->total, &m->free, &m->used);
		m->reserved = 0;
	}
	return r;
}

/* This container's processes on a card, into an array of that capacity; returns how many there are. */
static unsigned processes(nvmlDevice dev, unsigned capacity, nvmlProcessV2 *out)
{
	struct device_limit g;
	unsigned n = 0;
	int index;

	if (!grant(dev, &g, &index))
		return 0;
	container_reap(session.container);
	for (int i = 0; i < MAX_PROCESSES; i++) {
		struct container_process *p = &session.container->process[i];
		uint64_t owner = atomic_load(&p->owner), used = atomic_load(&p->held[index]) + atomic_load(&p->overhead[index]);
		if (!owner_counts(owner) || !used)
			continue;
		if (n < capacity)
			out[n] = (nvmlProcessV2){(unsigned)container_pid(owner), used, UINT32_MAX, UINT32_MAX};
		n++;
	}
	return n;
}

static bool graphics_or_mps(void *real)
{
	return real != (void *)real_nvmlDeviceGetComputeRunningProcesses_v3 && real != (void *)real_nvmlDeviceGetComputeRunningProcesses_v2 &&
		real != (void *)real_nvmlDeviceGetComputeRunningProcesses;
}

nvmlReturn on_nvmlProcessesV2(fn_nvmlDeviceGetComputeRunningProcesses_v2 real, nvmlDevice dev, unsigned *count, nvmlProcessV2 *infos)
{
	unsigned capacity = *count;

	*count = graphics_or_mps((void *)real) ? 0 : processes(dev, infos ? capacity : 0, infos);
	return *count > capacity ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn on_nvmlProcessesV1(fn_nvmlDeviceGetComputeRunningProcesses real, nvmlDevice dev, unsigned *count, nvmlProcessV1 *infos)
{
	nvmlProcessV2 all[MAX_PROCESSES];
	unsigned capacity = *count;

	*count = graphics_or_mps((void *)real) ? 0 : processes(dev, MAX_PROCESSES, all);
	for (unsigned i = 0; infos && i < *count && i < capacity; i++)
		infos[i] = (nvmlProcessV1){all[i].pid, all[i].used};
	return *count > capacity ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
