/* Both libraries as files that a program finds by name, as tools do which use NVML alone. */
#include <dlfcn.h>
#include "network.h"
#include "remote_calls.h"
#include "../../cuda/test/stub.h"

static struct nvml nvml;
static struct driver cuda;
static const char *(*error_string)(nvmlReturn);

static void *library(const char *name)
{
	void *lib = dlopen(name, RTLD_NOW);
	if (!lib)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(lib);
	return lib;
}

/* Every function of the table is there by its name. */
static void *load_nvml(void)
{
	void *lib = library("libnvidia-ml.so.1");
#define LOAD_NVML(name, mode) nvml.name = (fn_##name)dlsym(lib, #name); CHECK(nvml.name);
	EACH_NVML(LOAD_NVML)
	error_string = (const char *(*)(nvmlReturn))dlsym(lib, "nvmlErrorString");
	return lib;
}

static void *load_cuda(void)
{
	void *lib = library("libcuda.so.1");
#define LOAD_CUDA(name, mode) cuda.name = (fn_##name)dlsym(lib, #name); CHECK(cuda.name);
	EACH_CALL(LOAD_CUDA)
	return lib;
}

static void begin(int dev)
{
	CUcontext ctx;

	EQUAL(cuda.cuInit(0), CUDA_SUCCESS);
	EQUAL(cuda.cuDevicePrimaryCtxRetain(&ctx, dev), CUDA_SUCCESS);
	EQUAL(cuda.cuCtxSetCurrent(ctx), CUDA_SUCCESS);
}

static nvmlDevice card(unsigned index)
{
	nvmlDevice dev = NULL;
	EQUAL(nvml.nvmlDeviceGetHandleByIndex_v2(index, &dev), NVML_SUCCESS);
	return dev;
}

static nvmlMemory memory(unsigned index)
{
	nvmlMemory m = {0};
	EQUAL(nvml.nvmlDeviceGetMemoryInfo(card(index), &m), NVML_SUCCESS);
	EQUAL(m.free + m.used, m.total);
	return m;
}

/* A tool that has never heard of CUDA: what it is answered is what the driver says. One process may be there: both libraries are one. */
static void answers(void)
{
	char text[96], id[32];
	unsigned count = 0, index = 9;
	int version = 0, driver_version = 0, n = 0, major = 0, minor = 9;
	nvmlUtilization rates = {0};
	nvmlPciInfo pci;
	nvmlDevice dev;
	CUuuid uuid;

	serve_with("--processes", "1");
	load_nvml();
	EQUAL(nvml.nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
	EQUAL(nvml.nvmlInitWithFlags(0), NVML_SUCCESS);
	load_cuda();
	EQUAL(cuda.cuInit(0), CUDA_SUCCESS);
	EQUAL(cuda.cuDeviceGetCount(&n), CUDA_SUCCESS);
	EQUAL(nvml.nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
	EQUAL(count, (unsigned)n);
	EQUAL(nvml.nvmlDeviceGetHandleByIndex_v2(count, &dev), NVML_ERROR_INVALID_ARGUMENT);
	EQUAL(nvml.nvmlDeviceGetHandleByIndex_v2(0, NULL), NVML_ERROR_INVALID_ARGUMENT);
	EQUAL(nvml.nvmlSystemGetCudaDriverVersion_v2(&version), NVML_SUCCESS);
	EQUAL(cuda.cuDriverGetVersion(&driver_version), CUDA_SUCCESS);
	EQUAL(version, driver_version);
	EQUAL(nvml.nvmlSystemGetDriverVersion(text, sizeof text), NVML_SUCCESS);
	CHECK(!strcmp(text, "580.65.06"));
	EQUAL(nvml.nvmlSystemGetDriverVersion(text, 9), NVML_ERROR_INSUFFICIENT_SIZE);
	EQUAL(nvml.nvmlSystemGetDriverVersion(text, 10), NVML_SUCCESS);
	EQUAL(nvml.nvmlSystemGetNVMLVersion(NULL, 10), NVML_ERROR_INVALID_ARGUMENT);
	EQUAL(nvml.nvmlDeviceGetIndex(card(1), &index), NVML_SUCCESS);
	EQUAL(index, 1);
	EQUAL(nvml.nvmlDeviceGetName(card(1), text, sizeof text), NVML_SUCCESS);
	CHECK(!strcmp(text, "NVIDIA A100-SXM4-40GB"));
	EQUAL(nvml.nvmlDeviceGetCudaComputeCapability(card(0), &major, &minor), NVML_SUCCESS);
	CHECK(major == 8 && minor == 0);
	EQUAL(nvml.nvmlDeviceGetUtilizationRates(card(0), &rates), NVML_SUCCESS);
	CHECK(rates.gpu == 25 && rates.memory == 5);
	EQUAL(cuda.cuDeviceGetUuid(&uuid, 1), CUDA_SUCCESS);
	EQUAL(nvml.nvmlDeviceGetUUID(card(1), text, sizeof text), NVML_SUCCESS);
	snprintf(id, sizeof id, "%02x%02x", uuid.bytes[14], uuid.bytes[15]);
	CHECK(!strncmp(text, "GPU-", 4) && !strcmp(text + strlen(text) - 4, id));
	EQUAL(nvml.nvmlDeviceGetHandleByUUID(text, &dev), NVML_SUCCESS);
	CHECK(dev == card(1));
	EQUAL(nvml.nvmlDeviceGetHandleByUUID("GPU-none", &dev), NVML_ERROR_NOT_FOUND);
	EQUAL(nvml.nvmlDeviceGetPciInfo_v3(card(1), &pci), NVML_SUCCESS);
	CHECK(pci.bus == 17 && !strcmp(pci.bus_id, "00000000:11:00.0"));
	for (const char **p = (const char *[]){"00000000:11:00.0", "0000:11:00.0", "11:00.0", NULL}; *p; p++) {
		EQUAL(nvml.nvmlDeviceGetHandleByPciBusId_v2(*p, &dev), NVML_SUCCESS);
		CHECK(dev == card(1));
	}
	EQUAL(nvml.nvmlDeviceGetHandleByPciBusId_v2("0001:11:00.0", &dev), NVML_ERROR_NOT_FOUND);
	EQUAL(nvml.nvmlDeviceGetHandleByPciBusId_v2("a card", &dev), NVML_ERROR_INVALID_ARGUMENT);
	for (nvmlDevice *p = (nvmlDevice[]){NULL, text, (char *)card(1) + 1, (char *)card(0) - 1}, *end = p + 4; p < end; p++)
		EQUAL(nvml.nvmlDeviceGetName(*p, text, sizeof text), NVML_ERROR_INVALID_ARGUMENT);
}

/* What is not carried is not there. */
static void absent(void)
{
	void *lib = load_nvml(), *driver = load_cuda();

	CHECK(!dlsym(lib, "nvmlDeviceGetTemperature") && !dlsym(lib, "nvmlDeviceSetPersistenceMode") && !dlsym(lib, "nvmlDeviceGetGraphicsRunningProcesses_v3"));
	CHECK(!dlsym(driver, "nvmlInit_v2") && !dlsym(driver, "call_sync"));
	CHECK(strcmp(error_string(NVML_ERROR_GPU_IS_LOST), error_string(NVML_ERROR_UNKNOWN)) && !strcmp(error_string(12345), error_string(NVML_ERROR_UNKNOWN)));
}

static void counted(void)
{
	unsigned count;

	serve_with("--processes", "1");
	load_nvml();
	EQUAL(nvml.nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
	EQUAL(nvml.nvmlInit_v2(), NVML_SUCCESS);
	EQUAL(nvml.nvmlInit(), NVML_SUCCESS);
	EQUAL(nvml.nvmlShutdown(), NVML_SUCCESS);
	EQUAL(nvml.nvmlDeviceGetCount(&count), NVML_SUCCESS);
	EQUAL(nvml.nvmlShutdown(), NVML_SUCCESS);
	EQUAL(nvml.nvmlDeviceGetCount(&count), NVML_ERROR_UNINITIALIZED);
	EQUAL(nvml.nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
	EQUAL(nvml.nvmlInit_v2(), NVML_SUCCESS);
	EQUAL(nvml.nvmlDeviceGetCount(&count), NVML_SUCCESS);
	EQUAL(count, 2);
}

/* Asking has no context on the card and costs none of its memory. Of the processes there it shows the one that asks. */
static void used(void)
{
	nvmlMemoryV2 v2 = {.version = sizeof v2 | 2 << 24};
	nvmlProcessV2 infos[4];
	nvmlProcessV1 first;
	size_t free_bytes, total;
	unsigned count = 4;
	CUdeviceptr p;
	int status;

	serve_with(NULL, NULL);
	load_nvml();
	EQUAL(nvml.nvmlInit_v2(), NVML_SUCCESS);
	EQUAL(memory(0).used, 0);
	EQUAL(nvml.nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, infos), NVML_SUCCESS);
	EQUAL(count, 0);
	load_cuda();
	begin(0);
	EQUAL(cuda.cuMemAlloc_v2(&p, 64 << 20), CUDA_SUCCESS);
	EQUAL(cuda.cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
	EQUAL(memory(0).total, total);
	EQUAL(memory(0).free, free_bytes);
	EQUAL(memory(1).used, 0);
	EQUAL(nvml.nvmlDeviceGetMemoryInfo_v2(card(0), &v2), NVML_SUCCESS);
	CHECK(v2.total == total && v2.free == free_bytes && v2.used == total - free_bytes && !v2.reserved);
	v2.version = sizeof v2 | 3 << 24;
	EQUAL(nvml.nvmlDeviceGetMemoryInfo_v2(card(0), &v2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	pid_t other = fork();
	if (other == 0) {
		begin(0);
		EQUAL(cuda.cuMemAlloc_v2(&p, 32 << 20), CUDA_SUCCESS);
		count = 4;
		EQUAL(nvml.nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, infos), NVML_SUCCESS); /* nvmlInit was the parent's */
		EQUAL(count, 1);
		EQUAL(infos[0].pid, getpid());
		CHECK(infos[0].used >= 96 << 20 && infos[0].used < 128 << 20); /* its context has 64 MiB */
		CHECK(memory(0).used >= 224 << 20);
		_exit(0);
	}
	CHECK(waitpid(other, &status, 0) == other);
	EQUAL(status, 0);
	count = 0;
	EQUAL(nvml.nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
	EQUAL(count, 1);
	EQUAL(nvml.nvmlDeviceGetComputeRunningProcesses(card(0), &count, &first), NVML_SUCCESS);
	EQUAL(first.pid, getpid());
	CHECK(first.used >= 128 << 20);
	count = 1;
	EQUAL(nvml.nvmlDeviceGetComputeRunningProcesses(card(1), &count, &first), NVML_SUCCESS);
	EQUAL(count, 0);
}

/* Who asks about a card takes no error away from who uses it. */
static void errors(void)
{
	CUdeviceptr p;

	serve_with(NULL, NULL);
	load_nvml();
	load_cuda();
	begin(0);
	EQUAL(nvml.nvmlInit_v2(), NVML_SUCCESS);
	EQUAL(cuda.cuMemAlloc_v2(&p, 4096), CUDA_SUCCESS);
	EQUAL(cuda.cuMemFree_v2(p), CUDA_SUCCESS);
	EQUAL(cuda.cuMemsetD8_v2(p, 1, 4096), CUDA_SUCCESS);
	memory(0);
	EQUAL(nvml.nvmlInit_v2(), NVML_SUCCESS);
	EQUAL(cuda.cuCtxSynchronize(), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuda.cuCtxSynchronize(), CUDA_SUCCESS);
}

/* A connection that breaks in the middle of an answer. */
static void breaks(void)
{
	char name[96];

	serve_with(NULL, NULL);
	atomic_store(&cut_after, 9000);
	start_network();
	load_nvml();
	EQUAL(nvml.nvmlInit_v2(), NVML_SUCCESS);
	for (int i = 0; i < 2; i++) {
		EQUAL(nvml.nvmlDeviceGetName(card(0), name, sizeof name), NVML_SUCCESS);
		CHECK(!strcmp(name, "NVIDIA A100-SXM4-40GB"));
	}
	atomic_store(&cut_after, 300); /* from the next connection on */
	for (int i = 0; i < 200; i++)
		EQUAL(memory(0).used, 0);
	CHECK(atomic_load(&cuts) > 20);
}

/* What cannot change is asked for once, whichever library is used; what can is asked for each time. */
static void cached(void)
{
	static const char *asked[32];
	char text[96], first[96];
	unsigned count = 0;
	int version, same, minor;
	nvmlPciInfo pci, pci_again;

	serve_with(NULL, NULL);
	atomic_store(&cut_after, LONG_MAX);
	start_network();
	load_nvml();
	EQUAL(nvml.nvmlInit_v2(), NVML_SUCCESS);
	nvmlDevice dev[] = {card(0), card(1)};
#define ONCE(name, compare, ...) do { \
	EQUAL(nvml.name(__VA_ARGS__), NVML_SUCCESS); \
	compare ## _FIRST; \
	long before_ = atomic_load(&carried); \
	EQUAL(nvml.name(__VA_ARGS__), NVML_SUCCESS); \
	EQUAL(atomic_load(&carried), before_); \
	compare ## _AGAIN; \
	asked[count++] = #name; \
} while (0)
#define TEXT_FIRST strcpy(first, text); memset(text, 0, sizeof text)
#define TEXT_AGAIN CHECK(*text && !strcmp(first, text))
#define NUMBER_FIRST same = version; version = 0
#define NUMBER_AGAIN CHECK(version && same == version)
#define PCI_FIRST pci_again = pci; memset(&pci, 0, sizeof pci)
#define PCI_AGAIN CHECK(pci.bus && pci.bus == pci_again.bus && !strcmp(pci.bus_id, pci_again.bus_id))
	ONCE(nvmlSystemGetDriverVersion, TEXT, text, sizeof text);
	ONCE(nvmlSystemGetNVMLVersion, TEXT, text, sizeof text);
	ONCE(nvmlSystemGetCudaDriverVersion, NUMBER, &version);
	ONCE(nvmlSystemGetCudaDriverVersion_v2, NUMBER, &version);
	for (unsigned i = 0; i < 2; i++) {
		ONCE(nvmlDeviceGetName, TEXT, dev[i], text, sizeof text);
		ONCE(nvmlDeviceGetUUID, TEXT, dev[i], text, sizeof text);
		EQUAL(text[strlen(text) - 1], '0' + (int)i);
		ONCE(nvmlDeviceGetPciInfo_v3, PCI, dev[i], &pci);
		EQUAL(pci.bus, 16 + i);
		ONCE(nvmlDeviceGetCudaComputeCapability, NUMBER, dev[i], &version, &minor);
	}
	long before = atomic_load(&carried);
	for (int i = 0; i < 2; i++)
		EQUAL(nvml.nvmlDeviceGetName(NULL, text, sizeof text), NVML_ERROR_INVALID_ARGUMENT);
	CHECK(atomic_load(&carried) > before + 2 * MOST_NAME); /* what NVML refuses is asked again */
#define IS_CACHED(symbol, mode) if (!strcmp(#mode, "cached")) { \
		bool found_ = false; \
		for (unsigned i = 0; i < count; i++) \
			found_ |= !strcmp(asked[i], #symbol); \
		if (!found_) fprintf(stderr, "%s is cached, and not called here\n", #symbol); \
		CHECK(found_); }
	EACH_NVML(IS_CACHED)
}

static void file(const char *path, const char *text, off_t size)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof full, "%s%s", check_root, path);
	f = fopen(full, "w");
	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0 && (!size || truncate(full, size) == 0));
}

/* Under the library the server's NVML speaks of the share, and of what all processes of the program have of it. */
static void share(void)
{
	enum { GRANTED = 1000000000 };
	char preload[512];
	CUdeviceptr p;
	int ready[2], status;
	char c;

	for (const char **path = (const char *[]){"/etc", "/etc/elastic-gpu", "/etc/elastic-gpu/turns", "/run", "/run/elastic-gpu", "/run/elastic-gpu-requests", NULL}; *path; path++)
		folder(*path);
	for (int i = 0; i < 2; i++) {
		char turns[96], requests[96];
		snprintf(turns, sizeof turns, "/etc/elastic-gpu/turns/GPU-11111111-1111-1111-1111-11111111112%d", i);
		snprintf(requests, sizeof requests, "/run/elastic-gpu-requests/GPU-11111111-1111-1111-1111-11111111112%d", i);
		file(turns, "", 6208);
		file(requests, "", 10304);
	}
	file("/etc/elastic-gpu/limits", "elastic-gpu 1\ncontainer test\ndevice * memory 1000000000\n", 0);
	snprintf(preload, sizeof preload, "%s/libelasticgpu.so", getenv("STUB_LIBRARY"));
	server_preloads = preload;
	setenv("REMOTE_SERVER", getenv("PLAIN_SERVER"), 1); /* the sanitizers' must be the first library */
	serve_with(NULL, NULL);
	load_nvml();
	load_cuda();
	EQUAL(nvml.nvmlInit_v2(), NVML_SUCCESS);
	EQUAL(memory(0).total, GRANTED);
	EQUAL(memory(0).used, 0);
	begin(0);
	EQUAL(cuda.cuMemAlloc_v2(&p, 64 << 20), CUDA_SUCCESS);
	CHECK(pipe(ready) == 0);
	pid_t other = fork();
	if (other == 0) {
		begin(0);
		EQUAL(cuda.cuMemAlloc_v2(&p, 128 << 20), CUDA_SUCCESS);
		CHECK(write(ready[1], "x", 1) == 1);
		pause();
	}
	close(ready[1]);
	CHECK(read(ready[0], &c, 1) == 1);
	nvmlMemory m = memory(0);
	CHECK(m.total == GRANTED && m.used >= 192 << 20 && m.used < GRANTED);
	unsigned count = 1;
	nvmlProcessV2 own;
	EQUAL(nvml.nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, &own), NVML_SUCCESS);
	CHECK(count == 1 && own.pid == (unsigned)getpid() && own.used >= 64 << 20 && own.used + (128 << 20) <= m.used);
	CHECK(kill(other, SIGKILL) == 0 && waitpid(other, &status, 0) == other);
}

/* No server, another one, or another libcuda: said, and never made up. */
static void lost(void)
{
	char name[96];

	address_is("nobody");
	load_nvml();
	EQUAL(nvml.nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
	EQUAL(nvml.nvmlDeviceGetName(NULL, name, sizeof name), NVML_ERROR_UNINITIALIZED);
	serve_with(NULL, NULL);
	EQUAL(nvml.nvmlInit_v2(), NVML_SUCCESS);
	CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
	serve_with(NULL, NULL);
	EQUAL(nvml.nvmlDeviceGetName(NULL, name, sizeof name), NVML_ERROR_GPU_IS_LOST);
	EQUAL(nvml.nvmlInit_v2(), NVML_ERROR_GPU_IS_LOST);
}

static void another_driver(void)
{
	char path[512];

	snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("STUB_LIBRARY"));
	library(path);
	serve_with(NULL, NULL);
	load_nvml();
	EQUAL(nvml.nvmlInit_v2(), NVML_ERROR_LIBRARY_NOT_FOUND);
}

/* A program may close what it has opened while the library has a thread. */
static void closed(void)
{
	void *lib;

	serve_with(NULL, NULL);
	lib = load_cuda();
	begin(0);
	CHECK(dlclose(lib) == 0 && dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
	EQUAL(cuda.cuCtxSynchronize(), CUDA_SUCCESS);
}

MAIN(T(answers), T(absent), T(counted), T(used), T(errors), T(breaks), T(cached), T(share), T(lost), T(another_driver), T(closed))
