// load KIND SECONDS [READY-FILE]: runs one kind of work for so long and prints how many operations a second it got.
// Kinds: launch (empty kernels), small (kernels of some 20 us), gemm (bf16 8192^3), graph (20 kernels a replay),
// coop (cooperative launches), sync (a kernel, then a wait for it).
// load past SECONDS: empty kernels, in turn through cuLaunchKernel as a program finds it and past any library in between;
// prints both rates, medians of many short windows in one process; what comes first in a window, such as asking for the
// turn, is not in its time.
// load serve KIND: for each line with a number of seconds works so long and prints operations a second.
// load steps KIND SECONDS READY-FILE GO-FILE PAUSE-MS: waits for the second file, works for a moment, then measures: steps
// a second, how long each took (in ms, from asking for it to having it), and how many were done in each second. KIND is
// decode (a graph of 20 kernels of ROUNDS, then a wait for it), llm (a token of a language model of 1.2 billion weights, as a
// graph, then a wait for it: kernels that do not fill the card), gemm or gemm16 (bf16 8192^3 and 16384^3, queued ahead), gemm1
// (8192^3, and a wait for each), or small (queued ahead, too).
// load fault SECONDS: small kernels for so long, then one that writes where it has no memory; prints what came of it.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <algorithm>
#include <vector>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <chrono>
#include <string>
#include <unistd.h>

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

__global__ void wild() { *(volatile int *)0x10 = 1; }

// One token of a language model: rows of weights times a vector, a warp to four rows; a norm; attention, a block to a head.
__device__ float pair(unsigned w, float a, float b)
{
	return __uint_as_float(w << 16) * a + __uint_as_float(w & 0xffff0000u) * b;
}

__global__ void rows(const uint4 *w, const float4 *x, float *y, int n)
{
	int row = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 4, lane = threadIdx.x % 32;
	float sum[4] = {0, 0, 0, 0};

	for (int i = lane; i < n / 8; i += 32) {
		uint4 v[4];
		#pragma unroll
		for (int r = 0; r < 4; r++)
			v[r] = __ldcs(&w[(size_t)(row + r) * n / 8 + i]);
		float4 a = x[2 * i], b = x[2 * i + 1];
		#pragma unroll
		for (int r = 0; r < 4; r++)
			sum[r] += pair(v[r].x, a.x, a.y) + pair(v[r].y, a.z, a.w) + pair(v[r].z, b.x, b.y) + pair(v[r].w, b.z, b.w);
	}
	#pragma unroll
	for (int r = 0; r < 4; r++) {
		for (int d = 16; d; d /= 2)
			sum[r] += __shfl_xor_sync(~0u, sum[r], d);
		if (!lane)
			y[row + r] = sum[r] * 1e-3f;
	}
}

__global__ void norm(float *x, int n)
{
	__shared__ float all;
	float sum = 0;

	if (!threadIdx.x) all = 0;
	__syncthreads();
	for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i] * x[i];
	atomicAdd(&all, sum);
	__syncthreads();
	for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] *= rsqrtf(all / n + 1e-5f);
}

__global__ void attention(const uint4 *kv, float *x, int tokens)
{
	const uint4 *mine = kv + (size_t)blockIdx.x * tokens * 16;
	float sum = 0;

	for (int i = threadIdx.x; i < tokens * 16; i += blockDim.x) sum += __uint_as_float(mine[i].x << 16);
	x[blockIdx.x * 64 + threadIdx.x % 64] += sum * 1e-9f;
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

// The driver's own function, read from its symbol table: dlsym would be answered by a library in between.
struct Search { const char *name; void *found; };

static int in_driver(struct dl_phdr_info *info, size_t, void *arg)
{
	Search *want = (Search *)arg;
	const ElfW(Sym) *symbols = nullptr;
	const char *strings = nullptr;
	const uint32_t *hash = nullptr;

	if (!strstr(info->dlpi_name, "libcuda.so"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		for (auto *d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; d++) {
			const void *at = (const void *)(d->d_un.d_ptr < info->dlpi_addr ? d->d_un.d_ptr + info->dlpi_addr : d->d_un.d_ptr);
			if (d->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym) *)at;
			if (d->d_tag == DT_STRTAB) strings = (const char *)at;
			if (d->d_tag == DT_GNU_HASH) hash = (const uint32_t *)at;
		}
	}
	if (!symbols || !strings || !hash)
		return 0;
	const uint32_t *bucket = hash + 4 + hash[2] * 2, *chain = bucket + hash[0];
	uint32_t last = 0;
	for (uint32_t b = 0; b < hash[0]; b++)
		last = std::max(last, bucket[b]);
	while (last >= hash[1] && !(chain[last - hash[1]] & 1))
		last++;
	for (uint32_t i = hash[1]; i <= last; i++)
		if (symbols[i].st_shndx != SHN_UNDEF && !strcmp(strings + symbols[i].st_name, want->name))
			want->found = (void *)(info->dlpi_addr + symbols[i].st_value);
	return want->found != nullptr;
}

typedef CUresult (*launch_t)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

static int past(double seconds, float *x, cudaStream_t s)
{
	Search driver = {"cuLaunchKernel", nullptr};
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	launch_t way[2] = {(launch_t)dlsym(lib, "cuLaunchKernel"), nullptr};
	cudaFunction_t f;
	std::vector<double> rates[2];
	void *args[] = {&x};

	OK(cudaGetFuncBySymbol(&f, (const void *)nothing));
	dl_iterate_phdr(in_driver, &driver);
	way[1] = (launch_t)driver.found;
	if (!way[0] || !way[1]) { fprintf(stderr, "no cuLaunchKernel\n"); return 1; }
	double end = now() + seconds;
	for (int turn = 0; now() < end; turn ^= 1) {
		double begin = 0;
		for (int b = 0; b < 9; b++) {
			for (int i = 0; i < 256; i++)
				if (way[turn]((CUfunction)f, 1, 1, 1, 32, 1, 1, 0, s, args, nullptr)) return 1;
			OK(cudaStreamSynchronize(s));
			if (b == 0)
				begin = now();
		}
		rates[turn].push_back(8 * 256 / (now() - begin));
	}
	for (auto &r : rates)
		std::sort(r.begin(), r.end());
	printf("%d %.1f %.1f\n", way[0] != way[1], rates[0][rates[0].size() / 2], rates[1][rates[1].size() / 2]);
	return 0;
}

struct Gemm {
	typedef int (*create_t)(void **);
	typedef int (*stream_t)(void *, cudaStream_t);
	typedef int (*gemm_t)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
		const void *, void *, int, int, int, int);
	void *handle = nullptr;
	gemm_t gemm = nullptr;
	unsigned short *a, *b, *c;
	int N = 8192;
	void init(cudaStream_t s = nullptr)
	{
		void *lib = dlopen(getenv("CUBLAS"), RTLD_NOW);
		if (!lib) { fprintf(stderr, "CUBLAS: %s\n", dlerror()); exit(1); }
		gemm = (gemm_t)dlsym(lib, "cublasGemmEx");
		if (((create_t)dlsym(lib, "cublasCreate_v2"))(&handle)) exit(1);
		OK(cudaMalloc(&a, 2ull * N * N)); OK(cudaMalloc(&b, 2ull * N * N)); OK(cudaMalloc(&c, 2ull * N * N));
		if (s) ((stream_t)dlsym(lib, "cublasSetStream_v2"))(handle, s);
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

static cudaGraphExec_t decode_graph(float *x, int blocks, int threads, int rounds, cudaStream_t s)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	for (int i = 0; i < 20; i++)
		grind<<<blocks, threads, 0, s>>>(x, rounds);
	OK(cudaStreamEndCapture(s, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	return exec;
}

// 16 layers of 2048, with 8192 between them, 32 heads over 512 tokens, and 128256 words.
static cudaGraphExec_t llm_graph(cudaStream_t s)
{
	const int hidden = 2048, between = 8192, heads = 32, tokens = 512, words = 128256, layers = 16;
	const size_t layer = (size_t)hidden * (3072 + hidden + 2 * between + between), all = layer * layers + (size_t)hidden * words;
	unsigned short *w;
	uint4 *kv;
	float *x, *y;
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	OK(cudaMalloc(&w, all * 2)); OK(cudaMalloc(&kv, (size_t)heads * tokens * 256)); OK(cudaMalloc(&x, sizeof(float) * 2 * between)); OK(cudaMalloc(&y, sizeof(float) * words));
	noise<<<1024, 256, 0, s>>>(w, all);
	OK(cudaMemsetAsync(kv, 0, (size_t)heads * tokens * 256, s)); OK(cudaMemsetAsync(x, 0, sizeof(float) * 2 * between, s)); OK(cudaMemsetAsync(y, 0, sizeof(float) * words, s));
	OK(cudaStreamSynchronize(s));
	OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	auto times = [&](unsigned short *&at, float *in, float *out, int n, int to) {
		rows<<<to / 32, 256, 0, s>>>((const uint4 *)at, (const float4 *)in, out, n);
		at += (size_t)n * to;
	};
	unsigned short *at = w;
	for (int l = 0; l < layers; l++) {
		norm<<<1, 1024, 0, s>>>(x, hidden);
		times(at, x, y, hidden, 3072);
		attention<<<heads, 128, 0, s>>>(kv, y, tokens);
		times(at, y, x, hidden, hidden);
		norm<<<1, 1024, 0, s>>>(x, hidden);
		times(at, x, y, hidden, 2 * between);
		times(at, y, x, between, hidden);
	}
	times(at, x, y, hidden, words);
	OK(cudaStreamEndCapture(s, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	return exec;
}

static void print_steps(std::vector<double> &took, const std::vector<double> &ends, double begin, double seconds)
{
	std::vector<long> each((size_t)seconds);
	double all = 0;

	for (double e : ends)
		if (e >= begin && e < begin + (size_t)seconds)
			each[(size_t)(e - begin)]++, all++;
	std::sort(took.begin(), took.end());
	auto at = [&](double q) { return took.empty() ? 0 : took[std::min(took.size() - 1, (size_t)(q * took.size()))] * 1e3; };
	printf("{\"rate\":%.3f,\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"max\":%.3f,\"each\":[", all / (size_t)seconds, at(.5), at(.9), at(.99), at(1));
	for (size_t i = 0; i < each.size(); i++)
		printf("%s%ld", i ? "," : "", each[i]);
	printf("]}\n");
}

// Products and small kernels are queued two ahead, so that the card is never without work; a decode waits for its result.
static int steps(int argc, char **argv)
{
	if (argc < 7) { fprintf(stderr, "steps KIND SECONDS READY GO PAUSE-MS\n"); return 2; }
	std::string kind = argv[2];
	double seconds = atof(argv[3]), pause = atof(argv[6]) / 1e3;
	const int blocks = 132 * 4, threads = 256;
	int rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 4000;
	float *x;
	cudaStream_t s;
	cudaEvent_t done[2];
	cudaGraphExec_t exec = nullptr;
	Gemm gemm;
	std::vector<double> took, ends;

	OK(cudaMalloc(&x, sizeof(float) * blocks * threads));
	OK(cudaMemset(x, 0, sizeof(float) * blocks * threads));
	OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	for (auto &e : done) OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
	if (kind == "gemm16") gemm.N = 16384;
	if (kind.compare(0, 4, "gemm") == 0) gemm.init(s);
	if (kind == "decode") exec = decode_graph(x, blocks, threads, rounds, s);
	if (kind == "llm") exec = llm_graph(s);
	auto launch = [&]() {
		if (exec) OK(cudaGraphLaunch(exec, s));
		else if (kind == "small") for (int i = 0; i < 16; i++) grind<<<blocks, threads, 0, s>>>(x, 4000);
		else gemm.run();
	};
	for (int i = 0; i < 3; i++) launch();
	OK(cudaDeviceSynchronize());
	if (FILE *f = fopen(argv[4], "w")) fclose(f);
	while (access(argv[5], F_OK)) usleep(1000);
	double begin = now() + 1.5, end = begin + seconds;
	for (long i = 0; now() < end + 0.5; i++) {
		double asked = now();
		launch();
		if (exec || kind == "gemm1") {
			OK(cudaStreamSynchronize(s));
		} else {
			OK(cudaEventRecord(done[i & 1], s));
			if (i) OK(cudaEventSynchronize(done[(i & 1) ^ 1]));
		}
		double t = now();
		if (asked >= begin && t < end) took.push_back(t - asked);
		ends.push_back(t);
		if (pause > 0) usleep((useconds_t)(pause * 1e6));
	}
	OK(cudaDeviceSynchronize());
	print_steps(took, ends, begin, seconds);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "steps"))
		return steps(argc, argv);
	bool serve = !strcmp(argv[1], "serve");
	std::string kind = argv[serve ? 2 : 1];
	double seconds = serve ? 0 : atof(argv[2]);
	const int blocks = 132 * 4, threads = 256;
	float *x;
	cudaStream_t s;
	cudaGraphExec_t exec = nullptr;
	Gemm gemm;
	int rounds = 4000, batch = kind == "gemm" ? 4 : kind == "graph" ? 16 : 256;

	OK(cudaMalloc(&x, sizeof(float) * blocks * threads));
	OK(cudaMemset(x, 0, sizeof(float) * blocks * threads));
	OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	if (kind == "past")
		return past(seconds, x, s);
	if (kind == "gemm")
		gemm.init();
	if (kind == "graph")
		exec = decode_graph(x, blocks, threads, rounds, s);
	if (kind == "fault") {
		for (double end = now() + seconds; now() < end;) {
			grind<<<blocks, threads, 0, s>>>(x, rounds);
			OK(cudaStreamSynchronize(s));
		}
		wild<<<1, 1, 0, s>>>();
		printf("%s\n", cudaGetErrorString(cudaStreamSynchronize(s)));
		return 0;
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
	auto work = [&](double seconds) {
		long ops = 0;
		double begin = now();
		while (now() < begin + seconds) {
			for (int i = 0; i < batch; i++) one();
			ops += batch;
			OK(cudaDeviceSynchronize());
		}
		return ops / (now() - begin);
	};
	if (serve) {
		puts("ready");
		fflush(stdout);
		for (char line[64]; fgets(line, sizeof line, stdin); fflush(stdout))
			printf("%.3f\n", work(atof(line)));
		return 0;
	}
	if (argc > 3) {
		FILE *f = fopen(argv[3], "w");
		if (f) fclose(f);
	}
	double begin = now(), warm = begin + (argc > 4 ? atof(argv[4]) : kind == "gemm" ? 1.0 : 0.3);
	while (now() < warm) {
		for (int i = 0; i < batch; i++) one();
		OK(cudaDeviceSynchronize());
	}
	printf("%.3f\n", work(seconds));
	return 0;
}
