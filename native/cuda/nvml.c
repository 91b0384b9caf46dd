/* NVML: the card as the container's share of it, and the container's own processes. */
#include <string.h>
#include <unistd.h>
#include "elastic.h"

static bool nvml_ready(void)
{
	static _Atomic int state;
	int s = atomic_load(&state);

	if (!s) {
		s = real_nvmlInit_v2 && real_nvmlInit_v2() == NVML_SUCCESS ? 1 : -1;
		atomic_store(&state, s);
	}
	return s > 0;
}

static _Atomic unsigned host_pid;

/* Inside a pid namespace only the agent can say under which pid NVML knows us. */
void nvml_host_pid(unsigned pid) { atomic_store(&host_pid, pid); }

static nvmlDevice handle_of(struct device *d)
{
	static _Atomic(nvmlDevice) handles[MAX_DEVICES];
	nvmlDevice dev = atomic_load(&handles[d->index]);

	if (!nvml_ready())
		return NULL;
	if (!dev && real_nvmlDeviceGetHandleByUUID && real_nvmlDeviceGetHandleByUUID(d->uuid, &dev) == NVML_SUCCESS)
		atomic_store(&handles[d->index], dev);
	return dev;
}

/* Bytes the driver says this process uses on a card. NVML speaks of pids as the host sees them. */
bool overhead_by_nvml(struct device *d, uint64_t *bytes)
{
	nvmlDevice dev = handle_of(d);
	nvmlProcessV2 infos[256];
	unsigned count = 256, pid = atomic_load(&host_pid) ? atomic_load(&host_pid) : (unsigned)getpid();

	if (!dev || !real_nvmlDeviceGetComputeRunningProcesses_v3 ||
	    real_nvmlDeviceGetComputeRunningProcesses_v3(dev, &count, infos) != NVML_SUCCESS)
		return false;
	for (unsigned i = 0; i < count; i++)
		if (infos[i].pid == pid && infos[i].used != UINT64_MAX) {
			*bytes = infos[i].used;
			return true;
		}
	return false;
}

/* Energy used since the driver was loaded, and the power limit in force. */
bool nvml_power(struct device *d, double *joules, double *limit_watts)
{
	nvmlDevice dev = handle_of(d);
	unsigned long long millijoules;
	unsigned milliwatts;

	if (!dev || !real_nvmlDeviceGetTotalEnergyConsumption || !real_nvmlDeviceGetEnforcedPowerLimit ||
	    real_nvmlDeviceGetTotalEnergyConsumption(dev, &millijoules) != NVML_SUCCESS ||
	    real_nvmlDeviceGetEnforcedPowerLimit(dev, &milliwatts) != NVML_SUCCESS)
		return false;
	*joules = (double)millijoules / 1000;
	*limit_watts = (double)milliwatts / 1000;
	return true;
}

/* The grant for a card that NVML speaks of; false if there is none to read. */
static bool grant(nvmlDevice dev, struct device_limit *g, int *index)
{
	struct limits l;
	char uuid[96] = "";

	if (!real_nvmlDeviceGetUUID || real_nvmlDeviceGetUUID(dev, uuid, sizeof uuid) != NVML_SUCCESS || !session_view(&l))
		return false;
	*g = *limits_for(&l, uuid);
	*index = region_device(session.region, uuid);
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
	region_reap(session.region);
	if (g.memory < *total || atomic_load(&session.oversubscribe))
		*total = g.memory;
	*used = region_used(session.region, index);
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

/* This container's processes on a card, into an array of room entries; returns how many there are. */
static unsigned processes(nvmlDevice dev, unsigned room, nvmlProcessV2 *out)
{
	struct device_limit g;
	unsigned n = 0;
	int index;

	if (!grant(dev, &g, &index))
		return 0;
	region_reap(session.region);
	for (int i = 0; i < MAX_PROCESSES; i++) {
		struct region_process *p = &session.region->process[i];
		uint64_t owner = atomic_load(&p->owner), used = atomic_load(&p->held[index]) + atomic_load(&p->overhead[index]);
		if (!owner || !used)
			continue;
		if (n < room)
			out[n] = (nvmlProcessV2){(unsigned)region_pid(owner), used, UINT32_MAX, UINT32_MAX};
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
	unsigned room = *count;

	*count = graphics_or_mps((void *)real) ? 0 : processes(dev, infos ? room : 0, infos);
	return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn on_nvmlProcessesV1(fn_nvmlDeviceGetComputeRunningProcesses real, nvmlDevice dev, unsigned *count, nvmlProcessV1 *infos)
{
	nvmlProcessV2 all[MAX_PROCESSES];
	unsigned room = *count;

	*count = graphics_or_mps((void *)real) ? 0 : processes(dev, MAX_PROCESSES, all);
	for (unsigned i = 0; infos && i < *count && i < room; i++)
		infos[i] = (nvmlProcessV1){all[i].pid, all[i].used};
	return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
