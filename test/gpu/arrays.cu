// arrays STEPS READY: arrays of every kind, read through textures and changed through surfaces STEPS times, and by a graph
// that copies from one. Prints a hash of all that was read, and how much memory it is. It writes the file READY after ten
// steps, and waits for a line before the last twenty: swapped meanwhile, the hash must be the same.
#include <cuda_runtime.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#define OK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { \
	fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)); exit(1); } } while (0)

enum Form { ONE, ONE_LAYERED, TWO, TWO_LAYERED, THREE, CUBE, GATHER };
struct Kind { const char *name; Form form; size_t w, h, d; unsigned flags, levels; };
static const Kind kinds[] = {
	{"1D", ONE, 8192, 0, 0, cudaArraySurfaceLoadStore, 0},
	{"1D layered", ONE_LAYERED, 1000, 0, 9, cudaArrayLayered | cudaArraySurfaceLoadStore, 0},
	{"2D", TWO, 1023, 517, 0, cudaArraySurfaceLoadStore, 0},
	{"2D of 256 MiB", TWO, 8192, 8192, 0, cudaArraySurfaceLoadStore, 0},
	{"2D for gathers", GATHER, 640, 480, 0, cudaArrayTextureGather, 0},
	{"2D layered", TWO_LAYERED, 300, 200, 7, cudaArrayLayered | cudaArraySurfaceLoadStore, 0},
	{"3D", THREE, 130, 90, 70, cudaArraySurfaceLoadStore, 0},
	{"cubemap", CUBE, 128, 128, 6, cudaArrayCubemap | cudaArraySurfaceLoadStore, 0},
	{"2D with levels", TWO, 1000, 700, 0, cudaArraySurfaceLoadStore, 8},
	{"2D layered with levels", TWO_LAYERED, 256, 256, 5, cudaArrayLayered | cudaArraySurfaceLoadStore, 6},
	{"3D with levels", THREE, 100, 120, 60, cudaArraySurfaceLoadStore, 6},
};

struct Level { cudaArray_t array; cudaSurfaceObject_t surface; size_t w, h, d; };
struct Made { const Kind *kind; cudaTextureObject_t texture; std::vector<Level> levels; };

static __device__ float fetch(Form form, cudaTextureObject_t t, float u, float v, float s, int z, float level)
{
	switch (form) {
	case ONE: return tex1DLod<float>(t, u, level);
	case ONE_LAYERED: return tex1DLayeredLod<float>(t, u, z, level);
	case TWO: return tex2DLod<float>(t, u, v, level);
	case TWO_LAYERED: return tex2DLayeredLod<float>(t, u, v, z, level);
	case THREE: return tex3DLod<float>(t, u, v, s, level);
	case GATHER: { float4 g = tex2Dgather<float4>(t, u, v, 0); return g.x + 3 * g.y + 5 * g.z + 7 * g.w; }
	default: break;
	}
	float a = 2 * u - 1, b = 2 * v - 1;
	float x[6] = {1, -1, a, a, a, -a}, y[6] = {-b, -b, 1, -1, -b, -b}, w[6] = {-a, a, b, -b, 1, -1};
	return texCubemap<float>(t, x[z], y[z], w[z]);
}

static __global__ void sum_up(Form form, cudaTextureObject_t t, size_t w, size_t h, size_t d, int level, unsigned long long *sum)
{
	unsigned long long mine = 0;
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < w * h * d; i += (size_t)gridDim.x * blockDim.x) {
		size_t x = i % w, y = i / w % h, z = i / w / h;
		float f = fetch(form, t, (x + 0.5f) / w, (y + 0.5f) / h, (z + 0.5f) / d, (int)z, level);
		mine += (__float_as_uint(f) + 1ull) * (2 * i + 1);
	}
	atomicAdd(sum, mine);
}

static __device__ float next(float v, size_t i) { return v > 60000 ? v - 60000 : v + 1 + i % 7; }

static __global__ void change(Form form, cudaSurfaceObject_t s, size_t w, size_t h, size_t d)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < w * h * d; i += (size_t)gridDim.x * blockDim.x) {
		int x = (int)(i % w) * 4, y = (int)(i / w % h), z = (int)(i / w / h);
		if (form == ONE) surf1Dwrite(next(surf1Dread<float>(s, x), i), s, x);
		else if (form == ONE_LAYERED) surf1DLayeredwrite(next(surf1DLayeredread<float>(s, x, z), i), s, x, z);
		else if (form == TWO) surf2Dwrite(next(surf2Dread<float>(s, x, y), i), s, x, y);
		else if (form == TWO_LAYERED) surf2DLayeredwrite(next(surf2DLayeredread<float>(s, x, y, z), i), s, x, y, z);
		else if (form == THREE) surf3Dwrite(next(surf3Dread<float>(s, x, y, z), i), s, x, y, z);
		else if (form == CUBE) surfCubemapwrite(next(surfCubemapread<float>(s, x, y, z), i), s, x, y, z);
	}
}

static __global__ void add(const float *p, size_t n, unsigned long long *sum)
{
	unsigned long long mine = 0;
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
		mine += (__float_as_uint(p[i]) + 1ull) * (2 * i + 1);
	atomicAdd(sum, mine);
}

static size_t at(size_t n, unsigned level) { return n >> level ? n >> level : 1; }

static void fill(const Level &l)
{
	std::vector<float> v(l.w * l.h * l.d);
	for (size_t i = 0; i < v.size(); i++) v[i] = (float)(i * 37 % 4099);
	cudaMemcpy3DParms c = {};
	c.srcPtr = make_cudaPitchedPtr(v.data(), l.w * 4, l.w, l.h);
	c.dstArray = l.array;
	c.extent = make_cudaExtent(l.w, l.h, l.d);
	c.kind = cudaMemcpyHostToDevice;
	OK(cudaMemcpy3D(&c));
}

static Made make(const Kind &k)
{
	cudaChannelFormatDesc f = cudaCreateChannelDesc<float>(), got;
	cudaExtent e = make_cudaExtent(k.w, k.h, k.d), extent;
	cudaMipmappedArray_t mips;
	cudaResourceDesc r = {};
	cudaTextureDesc t = {};
	Made m = {&k, 0, {}};
	unsigned flags;

	t.normalizedCoords = 1;
	t.addressMode[0] = t.addressMode[1] = t.addressMode[2] = cudaAddressModeClamp;
	t.maxMipmapLevelClamp = k.levels ? k.levels - 1 : 0;
	if (k.levels)
		OK(cudaMallocMipmappedArray(&mips, &f, e, k.levels, k.flags));
	for (unsigned i = 0; i < (k.levels ? k.levels : 1); i++) {
		bool layers = k.form != THREE;
		Level l = {nullptr, 0, at(k.w, i), at(k.h, i), layers ? at(k.d, 0) : at(k.d, i)};
		if (k.levels)
			OK(cudaGetMipmappedArrayLevel(&l.array, mips, i));
		else
			OK(cudaMalloc3DArray(&l.array, &f, e, k.flags));
		OK(cudaArrayGetInfo(&got, &extent, &flags, l.array));
		if (flags & cudaArrayDeferredMapping) {
			fprintf(stderr, "%s: flags %x\n", k.name, flags);
			exit(1);
		}
		fill(l);
		r.resType = cudaResourceTypeArray;
		r.res.array.array = l.array;
		if (k.flags & cudaArraySurfaceLoadStore)
			OK(cudaCreateSurfaceObject(&l.surface, &r));
		m.levels.push_back(l);
	}
	if (k.levels) {
		r.resType = cudaResourceTypeMipmappedArray;
		r.res.mipmap.mipmap = mips;
	}
	OK(cudaCreateTextureObject(&m.texture, &r, &t, nullptr));
	return m;
}

int main(int argc, char **argv)
{
	long steps = atol(argv[1]);
	std::vector<Made> made;
	unsigned long long *sum, result = 0;
	float *linear;
	size_t bytes = 0;
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	OK(cudaMalloc(&sum, 8));
	OK(cudaMemset(sum, 0, 8));
	for (const Kind &k : kinds) {
		made.push_back(make(k));
		for (const Level &l : made.back().levels) bytes += l.w * l.h * l.d * 4;
	}
	const Level &flat = made[2].levels[0];
	OK(cudaMalloc(&linear, flat.w * flat.h * 4));
	OK(cudaStreamCreate(&stream));
	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	OK(cudaMemcpy2DFromArrayAsync(linear, flat.w * 4, flat.array, 0, 0, flat.w * 4, flat.h, cudaMemcpyDeviceToDevice, stream));
	add<<<64, 256, 0, stream>>>(linear, flat.w * flat.h, sum);
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	for (long i = 0; i < steps; i++) {
		if (i == 10)
			fclose(fopen(argv[2], "w"));
		if (i == steps - 20 && getchar() == EOF)
			return 1;
		for (const Made &m : made)
			for (unsigned n = 0; n < m.levels.size(); n++) {
				const Level &l = m.levels[n];
				sum_up<<<256, 256, 0, stream>>>(m.kind->form, m.texture, l.w, l.h, l.d, n, sum);
				if (l.surface)
					change<<<256, 256, 0, stream>>>(m.kind->form, l.surface, l.w, l.h, l.d);
			}
		OK(cudaGraphLaunch(exec, stream));
		OK(cudaStreamSynchronize(stream));
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	OK(cudaMemcpy(&result, sum, 8, cudaMemcpyDeviceToHost));
	printf("hash %016llx, %zu MiB\n", result, bytes >> 20);
	return 0;
}
