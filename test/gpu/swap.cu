// swap GIB STEPS [READY [HOW]]: fills so much memory with a sequence, then adds one everywhere STEPS times, and checks every
// word at the end. Swapped in between, it must come to the same result. With "stdin" as STEPS it steps until a line comes. HOW it
// takes its memory: by cudaMalloc, a GiB at a time; async: by cudaMallocAsync, the same; a number: by cuMemCreate, so many
// MiB to a handle, mapped one behind the other.
#include <cuda.h>
#include <cuda_runtime.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <vector>

#define OK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { \
	fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)); exit(1); } } while (0)

#define DRIVER(call) do { CUresult e_ = (call); if (e_ != CUDA_SUCCESS) { \
	fprintf(stderr, "%s: %d\n", #call, (int)e_); exit(1); } } while (0)

__global__ void start(unsigned long long *x, size_t n, unsigned long long base)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) x[i] = base + i * 7;
}
__global__ void step(unsigned long long *x, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) x[i]++;
}
__global__ void check(const unsigned long long *x, size_t n, unsigned long long base, unsigned long long add, unsigned long long *bad)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
		if (x[i] != base + i * 7 + add) atomicAdd(bad, 1ull);
}

static unsigned long long *mapped(size_t bytes, size_t handle_bytes)
{
	CUmemAllocationProp prop = {};
	CUmemAccessDesc access = {};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	DRIVER(cuMemAddressReserve(&at, bytes, 0, 0, 0));
	for (size_t done = 0, n; done < bytes; done += n) {
		n = bytes - done < handle_bytes ? bytes - done : handle_bytes;
		DRIVER(cuMemCreate(&handle, n, &prop, 0));
		DRIVER(cuMemMap(at + done, n, 0, handle, 0));
		DRIVER(cuMemSetAccess(at + done, n, &access, 1));
	}
	return (unsigned long long *)at;
}

static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main(int argc, char **argv)
{
	size_t gib = strtoull(argv[1], 0, 10), n = (1ull << 30) / 8;
	bool by_line = !strcmp(argv[2], "stdin");
	long steps = by_line ? 1l << 60 : atol(argv[2]), done = 0;
	std::vector<unsigned long long *> x(gib);
	unsigned long long *bad, found = 0;
	const char *how = argc > 4 ? argv[4] : "malloc";
	unsigned long long *all = nullptr;
	double begin = now();

	OK(cudaMalloc(&bad, 8));
	OK(cudaMemset(bad, 0, 8));
	if (atoi(how))
		all = mapped(gib << 30, (size_t)atoi(how) << 20);
	for (size_t i = 0; i < gib; i++) {
		if (all)
			x[i] = all + i * n;
		else if (!strcmp(how, "async"))
			OK(cudaMallocAsync(&x[i], 1ull << 30, 0));
		else
			OK(cudaMalloc(&x[i], 1ull << 30));
		start<<<1024, 256>>>(x[i], n, i << 40);
	}
	OK(cudaDeviceSynchronize());
	if (argc > 3)
		fclose(fopen(argv[3], "w"));
	while (done < steps) {
		for (size_t i = 0; i < gib; i++)
			step<<<1024, 256>>>(x[i], n);
		OK(cudaDeviceSynchronize());
		done++;
		struct pollfd p = {0, POLLIN, 0};
		if (by_line && poll(&p, 1, 0) > 0)
			break;
	}
	for (size_t i = 0; i < gib; i++)
		check<<<1024, 256>>>(x[i], n, i << 40, done, bad);
	OK(cudaMemcpy(&found, bad, 8, cudaMemcpyDeviceToHost));
	printf("steps %ld wrong %llu seconds %.3f\n", done, found, now() - begin);
	return found != 0;
}
