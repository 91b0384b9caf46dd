// memory STEP-MIB: takes memory by every entry point until each says out of memory, and prints for each how much it got
// and what the driver itself says this process uses, so that nothing can hide.
#include <cuda.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <functional>

static size_t step;

#define CHECK(call) do { CUresult r_ = (call); if (r_) { printf("%s: %d\n", #call, (int)r_); exit(1); } } while (0)

static void fill(const char *name, std::function<CUresult(void)> take, std::function<void(void)> give)
{
	size_t n = 0, free_, total;
	CUresult r = CUDA_SUCCESS;
	while (n < 100000 && (r = take()) == CUDA_SUCCESS)
		n++;
	CHECK(cuMemGetInfo(&free_, &total));
	printf("%s got_mib %zu total_mib %zu free_mib %zu error %d\n", name, n * step >> 20, total >> 20, free_ >> 20, (int)r);
	fflush(stdout);
	if (getchar() == EOF)
		exit(1);
	give();
	CHECK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	CUdevice dev;
	CUcontext ctx;
	std::vector<CUdeviceptr> p;
	std::vector<CUarray> arrays;
	std::vector<CUmipmappedArray> mips;
	std::vector<CUmemGenericAllocationHandle> handles;
	CUmemoryPool pool, own;
	size_t pitch;

	step = strtoull(argv[1], 0, 10) << 20;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&dev, 0));
	CHECK(cuDevicePrimaryCtxRetain(&ctx, dev));
	CHECK(cuCtxSetCurrent(ctx));
	CHECK(cuDeviceGetDefaultMemPool(&pool, dev));
	printf("context\n");
	fflush(stdout);
	if (getchar() == EOF)
		exit(1);
	auto free_all = [&] { for (auto q : p) CHECK(cuMemFree(q)); p.clear(); };
	auto free_async = [&] { for (auto q : p) CHECK(cuMemFreeAsync(q, 0)); p.clear(); CHECK(cuCtxSynchronize()); CHECK(cuMemPoolTrimTo(pool, 0)); };
	CUdeviceptr d;
	fill("cuMemAlloc", [&] { CUresult r = cuMemAlloc(&d, step); if (!r) p.push_back(d); return r; }, free_all);
	fill("cuMemAllocPitch", [&] { CUresult r = cuMemAllocPitch(&d, &pitch, 1 << 16, step >> 16, 16); if (!r) p.push_back(d); return r; }, free_all);
	if (argc < 3) // never more managed memory than the card has: only where a limit is known to be in force
		fill("cuMemAllocManaged", [&] { CUresult r = cuMemAllocManaged(&d, step, CU_MEM_ATTACH_GLOBAL); if (!r) p.push_back(d); return r; }, free_all);
	fill("cuMemAllocAsync", [&] { CUresult r = cuMemAllocAsync(&d, step, 0); if (!r) p.push_back(d); return r; }, free_async);
	CUmemPoolProps pp; memset(&pp, 0, sizeof pp);
	pp.allocType = CU_MEM_ALLOCATION_TYPE_PINNED; pp.location.type = CU_MEM_LOCATION_TYPE_DEVICE; pp.location.id = dev;
	CHECK(cuMemPoolCreate(&own, &pp));
	fill("cuMemAllocFromPoolAsync", [&] { CUresult r = cuMemAllocFromPoolAsync(&d, step, own, 0); if (!r) p.push_back(d); return r; },
		[&] { for (auto q : p) CHECK(cuMemFreeAsync(q, 0)); p.clear(); CHECK(cuCtxSynchronize()); CHECK(cuMemPoolDestroy(own)); });
	CUmemAllocationProp mp; memset(&mp, 0, sizeof mp);
	mp.type = CU_MEM_ALLOCATION_TYPE_PINNED; mp.location.type = CU_MEM_LOCATION_TYPE_DEVICE; mp.location.id = dev;
	CUmemGenericAllocationHandle h;
	fill("cuMemCreate", [&] { CUresult r = cuMemCreate(&h, step, &mp, 0); if (!r) handles.push_back(h); return r; },
		[&] { for (auto q : handles) CHECK(cuMemRelease(q)); handles.clear(); });
	// mapped and released: the mapping alone keeps the memory
	fill("cuMemMap", [&] {
			CUresult r = cuMemCreate(&h, step, &mp, 0);
			if (r) return r;
			CHECK(cuMemAddressReserve(&d, step, 0, 0, 0)); CHECK(cuMemMap(d, step, 0, h, 0)); CHECK(cuMemRelease(h)); p.push_back(d);
			return r; },
		[&] { for (auto q : p) { CHECK(cuMemUnmap(q, step)); CHECK(cuMemAddressFree(q, step)); } p.clear(); });
	CUDA_ARRAY_DESCRIPTOR ad = {4096, step / 4096 / 4, CU_AD_FORMAT_FLOAT, 1};
	CUarray a;
	fill("cuArrayCreate", [&] { CUresult r = cuArrayCreate(&a, &ad); if (!r) arrays.push_back(a); return r; },
		[&] { for (auto q : arrays) CHECK(cuArrayDestroy(q)); arrays.clear(); });
	CUDA_ARRAY3D_DESCRIPTOR a3 = {512, 512, step / 512 / 512 / 4, CU_AD_FORMAT_FLOAT, 1, 0};
	fill("cuArray3DCreate", [&] { CUresult r = cuArray3DCreate(&a, &a3); if (!r) arrays.push_back(a); return r; },
		[&] { for (auto q : arrays) CHECK(cuArrayDestroy(q)); arrays.clear(); });
	CUDA_ARRAY3D_DESCRIPTOR am = {4096, step / 4096 / 4, 0, CU_AD_FORMAT_FLOAT, 1, 0};
	CUmipmappedArray m;
	fill("cuMipmappedArrayCreate", [&] { CUresult r = cuMipmappedArrayCreate(&m, &am, 1); if (!r) mips.push_back(m); return r; },
		[&] { for (auto q : mips) CHECK(cuMipmappedArrayDestroy(q)); mips.clear(); });
	return 0;
}
