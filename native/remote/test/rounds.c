/*
 * A program for tests of the way to the server: each line that it reads is a round of work, and it says "ok N" when what came
 * back is right, or "error CODE". The number on the line is how many launches.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../build/remote_calls.h"

#define N 1000
#define LARGE ((size_t)9 << 20)
#define TRY(call) do { int r_ = cu.call; if (r_) return r_; } while (0)

static struct driver cu;
static CUdeviceptr sum, one, big;
static void *add;
static int64_t expected;

static int begin(void)
{
	void *ctx, *mod;
	int64_t numbers[N];

	TRY(cuInit(0));
	TRY(cuDevicePrimaryCtxRetain(&ctx, 0));
	TRY(cuCtxSetCurrent(ctx));
	TRY(cuModuleLoadData(&mod, ".version 8.0"));
	TRY(cuModuleGetFunction(&add, mod, "add"));
	for (int i = 0; i < N; i++)
		numbers[i] = i;
	TRY(cuMemAlloc_v2(&sum, sizeof numbers));
	TRY(cuMemAlloc_v2(&one, sizeof numbers));
	TRY(cuMemAlloc_v2(&big, LARGE));
	TRY(cuMemsetD8_v2(sum, 0, sizeof numbers));
	TRY(cuMemcpyHtoD_v2(one, numbers, sizeof numbers));
	return 0;
}

static int round_of(int launches)
{
	static unsigned char mine[LARGE], theirs[LARGE];
	int64_t back[N];
	int n = N;
	void *params[] = {&sum, &one, &n};

	for (size_t i = 0; i < LARGE; i++)
		mine[i] = (unsigned char)(i * 31 + i / 4096 + (size_t)launches);
	TRY(cuMemcpyHtoD_v2(big, mine, LARGE));
	for (int i = 0; i < launches; i++)
		TRY(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	expected += launches;
	TRY(cuCtxSynchronize());
	TRY(cuMemcpyDtoH_v2(back, sum, sizeof back));
	for (int i = 0; i < N; i++)
		if (back[i] != i * expected)
			return -1; /* a launch was lost, or carried out twice */
	TRY(cuMemcpyDtoH_v2(theirs, big, LARGE));
	return memcmp(mine, theirs, LARGE) ? -2 : 0;
}

int main(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	char line[64];
	int r, n = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!lib) {
		printf("%s\n", dlerror());
		return 1;
	}
#define LOAD(name, mode) cu.name = (fn_##name)dlsym(lib, #name);
	EACH_CALL(LOAD)
	r = begin();
	printf(r ? "error %d\n" : "ready %d\n", r);
	while (!r && fgets(line, sizeof line, stdin)) {
		r = round_of(atoi(line));
		printf(r ? "error %d\n" : "ok %d\n", r ? r : ++n);
	}
	return r != 0;
}
