/* Energy and power limit of a card, from NVML, which may not be there: then time is time. */
#include <dlfcn.h>
#include <stdbool.h>
#include "card_power.h"
#include "driver_types.h"
#include "power_price.h"

static struct {
	nvmlReturn (*init)(void);
	nvmlReturn (*by_uuid)(const char *, nvmlDevice *);
	nvmlReturn (*energy)(nvmlDevice, unsigned long long *);
	nvmlReturn (*limit)(nvmlDevice, unsigned *);
} nvml;

static bool ready(void)
{
	static int state;
	void *library;

	if (state)
		return state > 0;
	library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
	state = -1;
	if (!library)
		return false;
	nvml.init = (nvmlReturn (*)(void))dlsym(library, "nvmlInit_v2");
	nvml.by_uuid = (nvmlReturn (*)(const char *, nvmlDevice *))dlsym(library, "nvmlDeviceGetHandleByUUID");
	nvml.energy = (nvmlReturn (*)(nvmlDevice, unsigned long long *))dlsym(library, "nvmlDeviceGetTotalEnergyConsumption");
	nvml.limit = (nvmlReturn (*)(nvmlDevice, unsigned *))dlsym(library, "nvmlDeviceGetEnforcedPowerLimit");
	if (nvml.init && nvml.by_uuid && nvml.energy && nvml.limit && nvml.init() == NVML_SUCCESS)
		state = 1;
	return state > 0;
}

static bool read_power(const char *uuid, double *joules, double *watts)
{
	unsigned long long millijoules;
	unsigned milliwatts;
	nvmlDevice dev;

	if (!ready() || nvml.by_uuid(uuid, &dev) != NVML_SUCCESS || nvml.energy(dev, &millijoules) != NVML_SUCCESS ||
	    nvml.limit(dev, &milliwatts) != NVML_SUCCESS)
		return false;
	*joules = (double)millijoules / 1000;
	*watts = (double)milliwatts / 1000;
	return true;
}

unsigned power_look(struct power *last, const char *uuid, int64_t busy, unsigned old, int64_t now)
{
	double joules, limit, seconds = (double)(now - last->at) / 1e9;
	struct power before = *last;
	unsigned price;

	if (!read_power(uuid, &joules, &limit))
		return old;
	*last = (struct power){now, busy, joules};
	if (!before.at || seconds <= 0 || seconds >= 5)
		return old;
	price = power_price((double)(busy - before.busy) / 1e9 / seconds, (joules - before.joules) / seconds, limit);
	return old ? (old + price) / 2 : price;
}
