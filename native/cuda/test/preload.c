/* A program that knows nothing of the library: run with it preloaded, it must get the library's functions on every way. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../driver_types.h"

#define CHECK(cond) do { if (!(cond)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); exit(1); } } while (0)

CUresult cuInit(unsigned); /* linked, as a program built with -lcuda */
CUresult cuDeviceTotalMem_v2(size_t *, CUdevice);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);

typedef CUresult (*total_fn)(size_t *, CUdevice);
typedef CUresult (*get_fn)(const char *, void **, int, uint64_t, int *);

static size_t total(total_fn f)
{
	size_t n = 0;
	CHECK(f && f(&n, 0) == CUDA_SUCCESS);
	return n;
}

/* Stands before libc: what dlsym(RTLD_NEXT) finds for it must still be libc's own. */
char *secure_getenv(const char *name)
{
	char *(*next)(const char *) = (char *(*)(const char *))dlsym(RTLD_NEXT, "secure_getenv");
	CHECK(next && next != secure_getenv);
	return next(name);
}

int main(int argc, char **argv)
{
	size_t limit = strtoull(argv[1], NULL, 10);
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *found;
	get_fn get;

	CHECK(cuInit(0) == CUDA_SUCCESS);
	CHECK(total(cuDeviceTotalMem_v2) == limit);
	CHECK(total((total_fn)dlsym(lib, "cuDeviceTotalMem_v2")) == limit);
	CHECK(total((total_fn)dlsym(RTLD_DEFAULT, "cuDeviceTotalMem_v2")) == limit);
	CHECK(total((total_fn)dlvsym(lib, "cuDeviceTotalMem_v2", "")) == limit);
	/* a program that looks up the lookup */
	void *(*again)(void *, const char *) = (void *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "dlsym");
	CHECK(total((total_fn)again(lib, "cuDeviceTotalMem_v2")) == limit);
	get = (get_fn)dlsym(lib, "cuGetProcAddress_v2"); /* the static runtime's way */
	CHECK(get("cuDeviceTotalMem", &found, 12000, 0, NULL) == CUDA_SUCCESS && total((total_fn)found) == limit);
	CHECK(get("cuGetProcAddress", &found, 12000, 0, NULL) == CUDA_SUCCESS);
	CHECK(((get_fn)found)("cuDeviceTotalMem", &found, 12000, 0, NULL) == CUDA_SUCCESS && total((total_fn)found) == limit);
	CHECK(dlclose(lib) == 0);
	CHECK(total(cuDeviceTotalMem_v2) == limit);
	CHECK(dlsym(RTLD_DEFAULT, "no_such_symbol_anywhere") == NULL && dlerror() != NULL);
	CHECK(secure_getenv("PATH") != NULL);
	CHECK(strtod("1.5", NULL) == 1.5 && dlsym(RTLD_DEFAULT, "strtod") == (void *)strtod);
	if (argc > 2) { /* after a fork without exec the child is a process of its own */
		int status;
		pid_t pid = fork();
		if (pid == 0)
			_exit(cuInit(0) == CUDA_SUCCESS && total(cuDeviceTotalMem_v2) == limit ? 0 : 1);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
	return 0;
}
