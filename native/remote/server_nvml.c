/* The card's NVML. Under the library it speaks of the claim's share, as it does to any container. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
#include "log.h"
#include "server.h"

struct nvml nvml;
static int32_t loaded = NVML_ERROR_LIBRARY_NOT_FOUND;

static void load(void)
{
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);

	if (!lib) {
		log_error("%s", dlerror());
		return;
	}
#define LOAD(name, mode) nvml.name = (fn_##name)dlsym(lib, #name);
	EACH_NVML(LOAD)
	if (nvml.nvmlInit_v2 && nvml.nvmlDeviceGetHandleByUUID)
		loaded = nvml.nvmlInit_v2();
}

int32_t nvml_ready(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load);
	return loaded;
}

/* NVML may know other cards than the driver, and in another order. */
int32_t nvml_card(int32_t number, nvmlDevice *dev)
{
	CUdevice d;
	CUuuid u;
	char text[64];
	int n;

	if (number < 0 || !driver.cuDeviceGet || driver.cuDeviceGet(&d, number) != CUDA_SUCCESS)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!driver.cuDeviceGetUuid || driver.cuDeviceGetUuid(&u, d) != CUDA_SUCCESS)
		return NVML_ERROR_UNKNOWN;
	n = snprintf(text, sizeof text, "GPU-");
	for (int i = 0; i < 16; i++)
		n += snprintf(text + n, sizeof text - (size_t)n, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", u.bytes[i]);
	return nvml.nvmlDeviceGetHandleByUUID(text, dev);
}

int serve_nvml_cards(struct served *s)
{
	struct { int32_t result, count; } back = {.count = 0};

	if (!reader_done(&s->in))
		return BROKEN;
	back.result = nvml_ready();
	if (back.result == NVML_SUCCESS && (!driver.cuDeviceGetCount || driver.cuDeviceGetCount(&back.count) != CUDA_SUCCESS))
		back.result = NVML_ERROR_UNKNOWN;
	writer_put(&s->out, &back, sizeof back);
	return CUDA_SUCCESS;
}

/* What this process, and so the program's, uses of a card. */
int serve_nvml_own_bytes(struct served *s)
{
	nvmlProcessV2 infos[256];
	unsigned count = sizeof infos / sizeof *infos;
	nvmlDevice dev;
	int32_t number, r;
	uint64_t bytes = 0;

	if (!reader_get(&s->in, &number, sizeof number) || !reader_done(&s->in))
		return BROKEN;
	r = nvml_ready();
	if (r == NVML_SUCCESS)
		r = nvml_card(number, &dev);
	if (r == NVML_SUCCESS)
		r = nvml.nvmlDeviceGetComputeRunningProcesses_v3 ? nvml.nvmlDeviceGetComputeRunningProcesses_v3(dev, &count, infos) : NVML_ERROR_FUNCTION_NOT_FOUND;
	for (unsigned i = 0; r == NVML_SUCCESS && i < count; i++)
		if (infos[i].pid == (unsigned)getpid())
			bytes = infos[i].used;
	writer_put(&s->out, &r, sizeof r);
	writer_put(&s->out, &bytes, sizeof bytes);
	return CUDA_SUCCESS;
}
