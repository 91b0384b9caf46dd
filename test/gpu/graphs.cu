// graphs STEPS READY: graphs with memory of their own, captured and added, launched STEPS times: freed by the same graph, by
// the program, by another graph, and by the next launch. Prints a hash of all that they made, and what the driver's
// functions answer. It writes the file READY after ten steps, and waits for a line before the last twenty: swapped meanwhile,
// and with the library or without it, what it prints must be the same.
#include <cuda_runtime.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#define OK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { \
	fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)); exit(1); } } while (0)

static const size_t N = (48 << 20) / 8;
typedef unsigned long long word;

// to[i] is a mix of from[i] and the step, which lies on the card.
static __global__ void mix(word *to, const word *from, const word *step)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < N; i += (size_t)gridDim.x * blockDim.x)
		to[i] = from[i] * 6364136223846793005ull + *step + i;
}
static __global__ void add(const word *p, word *sum)
{
	word mine = 0;
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < N; i += (size_t)gridDim.x * blockDim.x)
		mine += p[i] * (2 * i + 1);
	atomicAdd(sum, mine);
}
static __global__ void next(word *step) { ++*step; }

static cudaStream_t stream;
static word *base, *sum, *step;

static void begin() { OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)); }

static cudaGraphExec_t end(bool automatic)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphInstantiate(&exec, graph, automatic ? cudaGraphInstantiateFlagAutoFreeOnLaunch : 0));
	OK(cudaGraphDestroy(graph));
	return exec;
}

static word *taken()
{
	word *p;
	OK(cudaMallocAsync(&p, N * 8, stream));
	return p;
}

// Three allocations, of which one comes after another is freed.
static cudaGraphExec_t freed_inside()
{
	begin();
	word *a = taken();
	mix<<<256, 256, 0, stream>>>(a, base, step);
	word *b = taken();
	mix<<<256, 256, 0, stream>>>(b, a, step);
	OK(cudaFreeAsync(a, stream));
	word *c = taken();
	mix<<<256, 256, 0, stream>>>(c, b, step);
	add<<<256, 256, 0, stream>>>(c, sum);
	OK(cudaFreeAsync(c, stream));
	OK(cudaFreeAsync(b, stream));
	return end(false);
}

static cudaGraphExec_t unfreed_by(word **p, bool automatic)
{
	begin();
	*p = taken();
	mix<<<256, 256, 0, stream>>>(*p, base, step);
	return end(automatic);
}

static cudaGraphExec_t frees(word *p)
{
	begin();
	add<<<256, 256, 0, stream>>>(p, sum);
	OK(cudaFreeAsync(p, stream));
	return end(false);
}

static cudaGraphExec_t added(int *types, bool *same)
{
	cudaGraph_t graph;
	cudaGraphNode_t alloc, first, second, gone;
	cudaMemAllocNodeParams p = {}, got;
	cudaKernelNodeParams k = {};
	cudaGraphNodeType type;
	cudaGraphExec_t exec;
	void *freed = nullptr;

	OK(cudaGraphCreate(&graph, 0));
	p.poolProps.allocType = cudaMemAllocationTypePinned;
	p.poolProps.location.type = cudaMemLocationTypeDevice;
	p.bytesize = N * 8;
	OK(cudaGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &p));
	void *mixed[] = {&p.dptr, &base, &step}, *summed[] = {&p.dptr, &sum};
	k.func = (void *)mix;
	k.gridDim = k.blockDim = dim3(256);
	k.kernelParams = mixed;
	OK(cudaGraphAddKernelNode(&first, graph, &alloc, 1, &k));
	k.func = (void *)add;
	k.kernelParams = summed;
	OK(cudaGraphAddKernelNode(&second, graph, &first, 1, &k));
	OK(cudaGraphAddMemFreeNode(&gone, graph, &second, 1, p.dptr));
	OK(cudaGraphNodeGetType(alloc, &type));
	*types = type;
	OK(cudaGraphNodeGetType(gone, &type));
	*types = *types * 100 + type;
	OK(cudaGraphMemAllocNodeGetParams(alloc, &got));
	OK(cudaGraphMemFreeNodeGetParams(gone, &freed));
	*same = got.dptr == p.dptr && got.bytesize == p.bytesize && freed == p.dptr;
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphDestroy(graph));
	return exec;
}

static int answer(cudaError_t e)
{
	cudaGetLastError();
	return e;
}

int main(int argc, char **argv)
{
	long steps = atol(argv[1]);
	word result = 0, *unfreed, *automatic, *between;
	int types, again = 0, twice = 0;
	bool same;

	OK(cudaMalloc(&base, N * 8));
	OK(cudaMemset(base, 1, N * 8));
	OK(cudaMalloc(&sum, 16));
	OK(cudaMemset(sum, 0, 16));
	step = sum + 1;
	OK(cudaStreamCreate(&stream));
	cudaGraphExec_t inside = freed_inside(), one = unfreed_by(&unfreed, false), by_next = unfreed_by(&automatic, true), gives = unfreed_by(&between, false), takes = frees(between);
	cudaGraphExec_t nodes = added(&types, &same);
	for (long i = 0; i < steps; i++) {
		if (i == 10)
			fclose(fopen(argv[2], "w"));
		if (i == steps - 20 && getchar() == EOF)
			return 1;
		OK(cudaGraphLaunch(inside, stream));
		OK(cudaGraphLaunch(one, stream));
		again = answer(cudaGraphLaunch(one, stream));
		add<<<256, 256, 0, stream>>>(unfreed, sum);
		OK(cudaFreeAsync(unfreed, stream));
		twice = answer(cudaFreeAsync(unfreed, stream));
		OK(cudaGraphLaunch(by_next, stream));
		add<<<256, 256, 0, stream>>>(automatic, sum);
		OK(cudaGraphLaunch(gives, stream));
		OK(cudaGraphLaunch(takes, stream));
		OK(cudaGraphLaunch(nodes, stream));
		next<<<1, 1, 0, stream>>>(step);
		OK(cudaStreamSynchronize(stream));
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	OK(cudaGraphExecDestroy(by_next));
	add<<<256, 256, 0, stream>>>(automatic, sum); // it is allocated until it is freed
	OK(cudaFreeAsync(automatic, stream));
	OK(cudaMemcpy(&result, sum, 8, cudaMemcpyDeviceToHost));
	printf("hash %016llx, types %d, same %d, launched again %d, freed twice %d\n", result, types, same, again, twice);
	return 0;
}
