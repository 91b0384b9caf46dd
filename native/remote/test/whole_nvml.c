/* libnvidia-ml.so.1 beside whole_driver.c: other ways to a card that the library's tests do not need. */
#include <stdio.h>
#include "../../cuda/test/stub.h"

#define API __attribute__((visibility("default")))

API nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice *dev);
API nvmlReturn nvmlDeviceGetCount_v2(unsigned *n);

API nvmlReturn nvmlInit(void) { return NVML_SUCCESS; }
API nvmlReturn nvmlInitWithFlags(unsigned flags) { (void)flags; return NVML_SUCCESS; }
API nvmlReturn nvmlDeviceGetCount(unsigned *n) { return nvmlDeviceGetCount_v2(n); }
API nvmlReturn nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice *dev) { return nvmlDeviceGetHandleByIndex_v2(i, dev); }
API nvmlReturn nvmlDeviceGetIndex(nvmlDevice dev, unsigned *i) { *i = (unsigned)(intptr_t)dev - 1; return NVML_SUCCESS; }
API nvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice *dev)
{
	unsigned domain, bus;
	if (sscanf(id, "%x:%x:00.0", &domain, &bus) != 2 || domain || bus < 16 || bus >= 16 + (unsigned)stub_device_count())
		return NVML_ERROR_NOT_FOUND;
	return nvmlDeviceGetHandleByIndex_v2(bus - 16, dev);
}
API nvmlReturn nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice *dev) { return nvmlDeviceGetHandleByPciBusId_v2(id, dev); }
