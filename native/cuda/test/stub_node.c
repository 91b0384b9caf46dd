/* What a node's agent asks of NVML beside what containers do: which cards there are, and how they are. */
#include <stdio.h>
#include <string.h>
#include "stub.h"

#define API __attribute__((visibility("default")))

static int index_of(nvmlDevice dev) { return (int)(intptr_t)dev - 1; }

API nvmlReturn nvmlShutdown(void) { return NVML_SUCCESS; }
API const char *nvmlErrorString(nvmlReturn r) { return r ? "the stub has no such thing" : "success"; }
API nvmlReturn nvmlDeviceGetCount_v2(unsigned *n) { *n = (unsigned)stub_device_count(); return NVML_SUCCESS; }
API nvmlReturn nvmlDeviceGetMinorNumber(nvmlDevice dev, unsigned *n) { *n = (unsigned)index_of(dev); return NVML_SUCCESS; }

API nvmlReturn nvmlSystemGetDriverVersion(char *v, unsigned length) { snprintf(v, length, "580.65.06"); return NVML_SUCCESS; }
API nvmlReturn nvmlSystemGetNVMLVersion(char *v, unsigned length) { snprintf(v, length, "13.580.65.06"); return NVML_SUCCESS; }
API nvmlReturn nvmlSystemGetCudaDriverVersion(int *v) { *v = 13000; return NVML_SUCCESS; }
API nvmlReturn nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return NVML_SUCCESS; }
API nvmlReturn nvmlDeviceGetCudaComputeCapability(nvmlDevice dev, int *major, int *minor) { (void)dev; *major = 8; *minor = 0; return NVML_SUCCESS; }

API nvmlReturn nvmlDeviceGetName(nvmlDevice dev, char *name, unsigned length)
{
	(void)dev;
	snprintf(name, length, "NVIDIA A100-SXM4-40GB");
	return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetPciInfo_v3(nvmlDevice dev, nvmlPciInfo *pci)
{
	memset(pci, 0, sizeof *pci);
	pci->bus = (unsigned)(16 + index_of(dev));
	snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "0000:%02X:00.0", pci->bus);
	snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
	return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetUtilizationRates(nvmlDevice dev, nvmlUtilization *r)
{
	(void)dev;
	*r = (nvmlUtilization){25, 5};
	return NVML_SUCCESS;
}

API nvmlReturn nvmlDeviceGetPowerUsage(nvmlDevice dev, unsigned *mw) { (void)dev; *mw = 100000; return NVML_SUCCESS; }
API nvmlReturn nvmlDeviceGetTemperature(nvmlDevice dev, int sensor, unsigned *c) { (void)dev, (void)sensor; *c = 40; return NVML_SUCCESS; }

/* No links, no instances and no events on this card. */
#define NOTHING(name, ...) API nvmlReturn name(__VA_ARGS__) { return NVML_ERROR_NOT_SUPPORTED; }
NOTHING(nvmlDeviceGetNvLinkState, nvmlDevice dev __attribute__((unused)), unsigned link __attribute__((unused)), int *on __attribute__((unused)))
NOTHING(nvmlDeviceGetMigMode, nvmlDevice dev __attribute__((unused)), unsigned *now __attribute__((unused)), unsigned *next __attribute__((unused)))
NOTHING(nvmlEventSetCreate, void **set __attribute__((unused)))
