// load KIND SECONDS [READY-FILE [windows]]: runs one kind of work for so long and prints how many operations a second it got.
// Kinds: launch (empty kernels), small (kernels of some 20 us), gemm (bf16 8192^3), graph (20 kernels a replay),
// coop (cooperative launches), sync (a kernel, then a wait for it).
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <chrono>
#include <string>

#define OK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { \
	fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)); exit(1); } } while (0)

__global__ void nothing(float *) {}

__global__ void grind(float *x, int rounds)
{
	float v = x[blockIdx.x * blockDim.x + threadIdx.x];
	for (int i = 0; i < rounds; i++)
		v = v * 1.0001f + 0.5f;
	x[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

__global__ void noise(unsigned short *x, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
		unsigned h = (unsigned)(i * 2654435761u) ^ (unsigned)(i >> 13);
		h = (h ^ (h >> 15)) * 2246822519u;
		x[i] = (unsigned short)(0x3c00 + (h & 0x81ff)); // bf16 of either sign, between about 0.008 and 4
	}
}

static double now()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Gemm {
	typedef int (*create_t)(void **);
	typedef int (*stream_t)(void *, cudaStream_t);
	typedef int (*gemm_t)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
		const void *, void *, int, int, int, int);
	void *handle = nullptr;
	gemm_t gemm = nullptr;
	unsigned short *a, *b, *c;
	static const int N = 8192;
	void init()
	{
		void *lib = dlopen(getenv("CUBLAS"), RTLD_NOW);
		if (!lib) { fprintf(stderr, "CUBLAS: %s\n", dlerror()); exit(1); }
		gemm = (gemm_t)dlsym(lib, "cublasGemmEx");
		if (((create_t)dlsym(lib, "cublasCreate_v2"))(&handle)) exit(1);
		OK(cudaMalloc(&a, 2ull * N * N)); OK(cudaMalloc(&b, 2ull * N * N)); OK(cudaMalloc(&c, 2ull * N * N));
		noise<<<1024, 256>>>(a, (size_t)N * N); noise<<<1024, 256>>>(b, (size_t)N * N);
		OK(cudaDeviceSynchronize());
	}
	void run()
	{
		float one = 1, zero = 0;
		const int BF16 = 14, F32 = 68;
		int r = gemm(handle, 0, 0, N, N, N, &one, a, BF16, N, b, BF16, N, &zero, c, BF16, N, F32, -1);
		if (r) { fprintf(stderr, "gemm: %d\n", r); exit(1); }
	}
};

int main(int argc, char **argv)
{
	std::string kind = argv[1];
	double seconds = atof(argv[2]);
	const int blocks = 132 * 4, threads = 256;
	float *x;
	cudaStream_t s;
	cudaGraph_t graph;
	cudaGraphExec_t exec = nullptr;
	Gemm gemm;
	int rounds = 4000, batch = kind == "gemm" ? 4 : kind == "graph" ? 16 : 256;

	OK(cudaMalloc(&x, sizeof(float) * blocks * threads));
	OK(cudaMemset(x, 0, sizeof(float) * blocks * threads));
	OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	if (kind == "gemm")
		gemm.init();
	if (kind == "graph") {
		OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
		for (int i = 0; i < 20; i++)
			grind<<<blocks, threads, 0, s>>>(x, rounds);
		OK(cudaStreamEndCapture(s, &graph));
		OK(cudaGraphInstantiate(&exec, graph, 0));
	}
	auto one = [&]() {
		if (kind == "launch") nothing<<<1, 32, 0, s>>>(x);
		else if (kind == "small") grind<<<blocks, threads, 0, s>>>(x, rounds);
		else if (kind == "gemm") gemm.run();
		else if (kind == "graph") OK(cudaGraphLaunch(exec, s));
		else if (kind == "coop") {
			void *args[] = {&x, &rounds};
			OK(cudaLaunchCooperativeKernel((void *)grind, dim3(132), dim3(threads), args, 0, s));
		} else if (kind == "sync") {
			grind<<<blocks, threads, 0, s>>>(x, rounds);
			OK(cudaStreamSynchronize(s));
		}
	};
	for (int i = 0; i < 3 * batch; i++)
		one();
	OK(cudaDeviceSynchronize());
	if (argc > 3) {
		FILE *f = fopen(argv[3], "w");
		if (f) fclose(f);
	}
	double begin = now(), warm = begin + (kind == "gemm" ? 1.0 : 0.3);
	while (now() < warm) {
		for (int i = 0; i < batch; i++) one();
		OK(cudaDeviceSynchronize());
	}
	long ops = 0;
	if (argc > 4) { // the rate of each quarter of a second, with the time, so that limits can change in between
		for (double end = now() + seconds, from = now(); from < end; ops = 0) {
			while (now() < from + 0.25) {
				for (int i = 0; i < batch; i++) one();
				ops += batch;
				OK(cudaDeviceSynchronize());
			}
			double to = now();
			printf("%.3f %.3f %.1f\n", from, to, ops / (to - from));
			from = to;
		}
		return 0;
	}
	begin = now();
	while (now() < begin + seconds) {
		for (int i = 0; i < batch; i++) one();
		ops += batch;
		OK(cudaDeviceSynchronize());
	}
	printf("%.3f\n", ops / (now() - begin));
	return 0;
}
