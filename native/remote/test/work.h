/* A program whose result says whether each call was carried out once. */
#ifndef WORK_H
#define WORK_H
#include "linked.h"

static CUfunction kernel(const char *name)
{
	static CUmodule mod;
	CUfunction f;

	if (!mod)
		EQUAL(cuModuleLoadData(&mod, ".version 8.0"), CUDA_SUCCESS);
	EQUAL(cuModuleGetFunction(&f, mod, name), CUDA_SUCCESS);
	return f;
}

#define N 1000
#define LARGE ((size_t)9 << 20)

static void work(int rounds)
{
	int64_t numbers[N], back[N];
	int n = N;
	CUdeviceptr sum, one, big;
	CUfunction add = kernel("add");
	CUstream stream;
	CUevent event;
	void *params[] = {&sum, &one, &n};
	unsigned char *mine = malloc(LARGE), *theirs = malloc(LARGE);

	CHECK(mine && theirs);
	for (int i = 0; i < N; i++)
		numbers[i] = i;
	for (size_t i = 0; i < LARGE; i++)
		mine[i] = (unsigned char)(i * 31 + i / 4096);
	EQUAL(cuMemAlloc_v2(&sum, sizeof numbers), CUDA_SUCCESS);
	EQUAL(cuMemAlloc_v2(&one, sizeof numbers), CUDA_SUCCESS);
	EQUAL(cuMemAlloc_v2(&big, LARGE), CUDA_SUCCESS);
	EQUAL(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
	EQUAL(cuEventCreate(&event, 0), CUDA_SUCCESS);
	EQUAL(cuMemsetD8_v2(sum, 0, sizeof numbers), CUDA_SUCCESS);
	EQUAL(cuMemcpyHtoD_v2(one, numbers, sizeof numbers), CUDA_SUCCESS);
	EQUAL(cuMemcpyHtoD_v2(big, mine, LARGE), CUDA_SUCCESS);
	for (int i = 0; i < rounds; i++) {
		EQUAL(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, i % 2 ? stream : NULL, params, NULL), CUDA_SUCCESS);
		if (i % 16 == 0) {
			EQUAL(cuEventRecord(event, stream), CUDA_SUCCESS);
			EQUAL(cuEventSynchronize(event), CUDA_SUCCESS);
		}
	}
	EQUAL(cuStreamSynchronize(stream), CUDA_SUCCESS);
	EQUAL(cuMemcpyDtoH_v2(back, sum, sizeof back), CUDA_SUCCESS);
	for (int i = 0; i < N; i++)
		EQUAL(back[i], (int64_t)i * rounds);
	EQUAL(cuMemcpyDtoHAsync_v2(theirs, big, LARGE, stream), CUDA_SUCCESS);
	CHECK(!memcmp(mine, theirs, LARGE));
	EQUAL(cuEventDestroy_v2(event), CUDA_SUCCESS);
	EQUAL(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
	EQUAL(cuMemFree_v2(sum), CUDA_SUCCESS);
	EQUAL(cuMemFree_v2(one), CUDA_SUCCESS);
	EQUAL(cuMemFree_v2(big), CUDA_SUCCESS);
	EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	free(mine);
	free(theirs);
}

#endif
