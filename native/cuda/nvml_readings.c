/* What NVML says about this process and its cards. */
#include <stdatomic.h>
#include <unistd.h>
#include "driver_symbols.h"
#include "nvml_readings.h"
#include "session.h"

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

void nvml_set_host_pid(unsigned pid) { atomic_store(&host_pid, pid); }

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

static bool own_bytes(nvmlReturn (*list)(nvmlDevice, unsigned *, nvmlProcessV2 *), nvmlDevice dev, uint64_t *bytes)
{
	nvmlProcessV2 infos[256];
	unsigned count = 256, pid = atomic_load(&host_pid) ? atomic_load(&host_pid) : (unsigned)getpid();

	if (!list || list(dev, &count, infos) != NVML_SUCCESS)
		return false;
	for (unsigned i = 0; i < count; i++)
		if (infos[i].pid == pid && infos[i].used != UINT64_MAX) {
			*bytes = infos[i].used;
			return true;
		}
	return false;
}

/* Bytes the driver says this process uses on a card. NVML speaks of pids as the host sees them; clients of MPS have a list of their own. */
bool nvml_process_bytes(struct device *d, uint64_t *bytes)
{
	nvmlDevice dev = handle_of(d);

	if (!dev)
		return false;
	return (d->mps && own_bytes(real_nvmlDeviceGetMPSComputeRunningProcesses_v3, dev, bytes)) ||
		own_bytes(real_nvmlDeviceGetComputeRunningProcesses_v3, dev, bytes);
}
