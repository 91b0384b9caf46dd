/* Memory of pools, and memory that the program manages itself, goes out and comes back, through the library, against the tests' driver. */
#include "calls.h"
#include "../blocks.h"
#include "../host_pool.h"
#include "moves.h"

static CUmemHandle create(uint64_t size)
{
	CUmemHandle h;

	EQUAL(cuMemCreate(&h, size, &on_device, 0), 0);
	return h;
}

static void the_programs_own_memory_goes_out_and_comes_back(void)
{
	enum { N = 6 };
	CUmemHandle h[N];
	CUdeviceptr p;
	uint64_t before;

	begin_swap();
	p = reserve(N * 20 * MiB); /* as PyTorch's expandable segments have it */
	for (unsigned i = 0; i < N; i++) {
		h[i] = create(20 * MiB);
		EQUAL(cuMemMap(p + i * 20 * MiB, 20 * MiB, 0, h[i], 0), 0);
	}
	EQUAL(cuMemSetAccess(p, N * 20 * MiB, &all_of_it, 1), 0);
	fill(p, N * 20 * MiB, 7);
	before = used();
	EQUAL(before, CONTEXT + N * 20 * MiB);
	for (int round = 0; round < 10; round++) {
		out();
		EQUAL(stub_card_used(0), CONTEXT);
		EQUAL(used(), before);
		in();
		EQUAL(stub_card_used(0), before);
		CHECK(filled(p, N * 20 * MiB, 7 + (unsigned)round));
		fill(p, N * 20 * MiB, 8 + (unsigned)round);
	}
	EQUAL(cuMemUnmap(p, 2 * 20 * MiB), 0); /* handles from before go on to be good */
	EQUAL(cuMemMap(p, 20 * MiB, 0, h[1], 0), 0);
	EQUAL(cuMemSetAccess(p, 20 * MiB, &all_of_it, 1), 0);
	for (uint64_t at = 0; at < 20 * MiB; at += 4096)
		EQUAL(*(unsigned *)(uintptr_t)(p + at), 17 + 20 * MiB + at);
	EQUAL(cuMemUnmap(p, 20 * MiB), 0);
	EQUAL(cuMemUnmap(p + 2 * 20 * MiB, (N - 2) * 20 * MiB), 0);
	for (int i = 0; i < N; i++)
		EQUAL(cuMemRelease(h[i]), 0);
	EQUAL(cuMemRelease(h[0]), CUDA_ERROR_INVALID_VALUE);
	EQUAL(used(), CONTEXT);
	EQUAL(stub_card_used(0), CONTEXT);
	CHECK(!blocks);
}

/* Nothing mapped, mapped twice, in parts, for reading alone, and mapped without its handle. */
static void however_it_is_mapped(void)
{
	CUmemAccess read_only = {{CU_MEM_LOCATION_DEVICE, 0}, 1};
	CUmemHandle nowhere, twice, parts, alone, again;
	CUdeviceptr p = 0, q = 0, r = 0, s = 0, t = 0;
	uint64_t before;

	begin_swap();
	nowhere = create(4 * MiB), twice = create(8 * MiB), parts = create(8 * MiB), alone = create(2 * MiB);
	p = reserve(8 * MiB), q = reserve(8 * MiB), r = reserve(8 * MiB), s = reserve(4 * MiB), t = reserve(2 * MiB);
	EQUAL(cuMemMap(p, 8 * MiB, 0, twice, 0), 0);
	EQUAL(cuMemMap(q, 8 * MiB, 0, twice, 0), 0);
	EQUAL(cuMemSetAccess(p, 8 * MiB, &all_of_it, 1), 0);
	EQUAL(cuMemSetAccess(q, 8 * MiB, &read_only, 1), 0);
	EQUAL(cuMemMap(r + 4 * MiB, 4 * MiB, 0, parts, 0), 0); /* the halves the other way round */
	EQUAL(cuMemMap(r, 4 * MiB, 4 * MiB, parts, 0), 0);
	EQUAL(cuMemSetAccess(r, 8 * MiB, &all_of_it, 1), 0);
	EQUAL(cuMemMap(s, 4 * MiB, 0, nowhere, 0), 0);
	EQUAL(cuMemSetAccess(s, 4 * MiB, &all_of_it, 1), 0);
	fill(p, 8 * MiB, 1);
	fill(r, 8 * MiB, 2);
	fill(s, 4 * MiB, 3);
	EQUAL(cuMemUnmap(s, 4 * MiB), 0);
	EQUAL(cuMemMap(t, 2 * MiB, 0, alone, 0), 0);
	EQUAL(cuMemSetAccess(t, 2 * MiB, &all_of_it, 1), 0);
	EQUAL(cuMemRelease(alone), 0);
	fill(t, 2 * MiB, 4);
	before = used();
	out();
	EQUAL(stub_card_used(0), CONTEXT);
	in();
	out_and_in();
	EQUAL(stub_card_used(0), before);
	CHECK(filled(p, 8 * MiB, 1) && filled(q, 8 * MiB, 1) && filled(r, 8 * MiB, 2) && filled(t, 2 * MiB, 4));
	fill(p, MiB, 9);
	CHECK(filled(q, MiB, 9)); /* the same memory at both addresses */
	unsigned long long flags;
	EQUAL(real_cuMemGetAccess(&flags, &read_only.location, q), 0);
	EQUAL(flags, 1);
	EQUAL(cuMemMap(s, 4 * MiB, 0, nowhere, 0), 0);
	EQUAL(cuMemSetAccess(s, 4 * MiB, &all_of_it, 1), 0);
	CHECK(filled(s, 4 * MiB, 3));
	EQUAL(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(t + MiB)), 0);
	EQUAL(again, alone);
	EQUAL(cuMemUnmap(t, 2 * MiB), 0);
	EQUAL(used(), before);
	EQUAL(cuMemRelease(again), 0);
	EQUAL(used(), before - 2 * MiB);
}

static void only_its_own_handles_are_translated(void)
{
	CUmemProp prop = {0}, to_share = on_device;
	CUmemHandle h, in_other, again, alien;
	struct swap_result r;
	CUdeviceptr p;
	int fd;

	to_share.handle_types = CU_MEM_HANDLE_POSIX_FD;
	begin_swap();
	EQUAL(cuMemRelease(12345), CUDA_ERROR_INVALID_VALUE); /* the driver's answer */
	p = reserve(2 * MiB);
	EQUAL(cuMemMap(p, 2 * MiB, 0, 12345, 0), CUDA_ERROR_INVALID_VALUE);
	h = create(2 * MiB);
	EQUAL(cuMemMap(p, 4 * MiB, 0, h, 0), CUDA_ERROR_INVALID_VALUE); /* more than it is */
	out_and_in();
	EQUAL(cuMemGetAllocationPropertiesFromHandle(&prop, h), 0);
	EQUAL(prop.location.type, CU_MEM_LOCATION_DEVICE);
	EQUAL(cuMemMapArrayAsync(NULL, 0, NULL), CUDA_ERROR_NOT_SUPPORTED);
	EQUAL(cuMemExportToShareableHandle(&fd, h, 1, 0), CUDA_ERROR_INVALID_VALUE); /* it was not made to be */
	EQUAL(cuMemRelease(h), 0);
	EQUAL(cuMemCreate(&h, 2 * MiB, &to_share, 0), 0);
	EQUAL(cuMemExportToShareableHandle(&fd, h, 1, 0), 0);
	EQUAL(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1), 0);
	EQUAL(again, h); /* the same memory, which counts once */
	EQUAL(used(), CONTEXT + 2 * MiB);
	out_and_in();
	EQUAL(cuMemMap(p, 2 * MiB, 0, again, 0), 0);
	EQUAL(cuMemUnmap(p, 2 * MiB), 0);
	EQUAL(cuMemRelease(again), 0);
	close(fd);
	EQUAL(real_cuMemCreate(&alien, 2 * MiB, &to_share, 0), 0); /* not made through the library */
	EQUAL(real_cuMemExportToShareableHandle(&fd, alien, 1, 0), 0);
	EQUAL(cuMemImportFromShareableHandle(&in_other, (void *)(intptr_t)fd, 1), 0);
	EQUAL(cuMemMap(p, 2 * MiB, 0, in_other, 0), 0);
	EQUAL(used(), CONTEXT + 4 * MiB);
	swap_out(UINT64_MAX, &r);
	CHECK(!r.done && strstr(r.why, "virtual memory of another process"));
	EQUAL(cuMemUnmap(p, 2 * MiB), 0);
	EQUAL(cuMemRelease(in_other), 0);
	EQUAL(real_cuMemRelease(alien), 0);
	EQUAL(cuMulticastBindMem(1, 0, h, 0, 2 * MiB, 0), 0);
	EQUAL(cuMemRelease(h), 0);
	EQUAL(used(), CONTEXT);
}

static void part_of_it_goes_and_a_full_card_changes_nothing(void)
{
	CUmemHandle h[4];
	CUdeviceptr p;
	struct swap_result r;
	uint64_t missing;

	begin_swap();
	p = reserve(128 * MiB);
	for (unsigned i = 0; i < 4; i++) {
		h[i] = create(32 * MiB);
		EQUAL(cuMemMap(p + i * 32 * MiB, 32 * MiB, 0, h[i], 0), 0);
	}
	EQUAL(cuMemSetAccess(p, 128 * MiB, &all_of_it, 1), 0);
	fill(p, 128 * MiB, 5);
	swap_out(40 * MiB, &r);
	EQUAL(r.bytes, 64 * MiB);
	EQUAL(stub_card_used(0), CONTEXT + 64 * MiB);
	out();
	setenv("STUB_MEMORY", "134217728", 1);
	swap_in(&r, &missing);
	CHECK(!r.done && missing > 0 && swap_is_out());
	EQUAL(stub_card_used(0), CONTEXT);
	setenv("STUB_MEMORY", "1073741824", 1);
	in();
	CHECK(filled(p, 128 * MiB, 5));
}

static void it_outlives_its_context_and_meets_the_limit(void)
{
	CUcontext second;
	CUmemHandle h, more;
	CUdeviceptr p;

	begin_swap();
	EQUAL(cuCtxCreate_v2(&second, 0, 0), 0);
	h = create(32 * MiB);
	p = reserve(32 * MiB);
	EQUAL(cuMemMap(p, 32 * MiB, 0, h, 0), 0);
	EQUAL(cuMemSetAccess(p, 32 * MiB, &all_of_it, 1), 0);
	fill(p, 32 * MiB, 6);
	EQUAL(cuCtxDestroy_v2(second), 0);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	out_and_in();
	CHECK(filled(p, 32 * MiB, 6));
	EQUAL(cuMemCreate(&more, 512 * MiB, &on_device, 0), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(cuMemCreate(&more, 3 * MiB, &on_device, 0), CUDA_ERROR_INVALID_VALUE); /* as the driver has it */
	EQUAL(cuMemUnmap(p, 32 * MiB), 0);
	EQUAL(cuMemRelease(h), 0);
	EQUAL(stub_card_used(0), CONTEXT);
}

static _Atomic bool asked, captured;
static void *end_capture(void *arg)
{
	CUdeviceptr p = *(CUdeviceptr *)arg;

	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	while (!atomic_load(&asked))
		sched_yield();
	for (int i = 0; i < 2000; i++) { /* gets on, also when calls are held back for a moment */
		EQUAL(cuMemsetD32Async(p, 1, 16, stream), 0);
		sched_yield();
	}
	atomic_store(&captured, true);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	return NULL;
}

static void a_capture_ends_before_anything_moves(void)
{
	CUdeviceptr p;
	pthread_t t;

	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 2 * MiB), 0);
	EQUAL(real_cuStreamCreate(&stream, 1), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0); /* another thread ends it */
	EQUAL(pthread_create(&t, NULL, end_capture, &p), 0);
	atomic_store(&asked, true);
	out();
	CHECK(atomic_load(&captured));
	EQUAL(pthread_join(t, NULL), 0);
	in();
}

/* ---- pools ---- */

static uint64_t pool_says(CUmemPool pool, int attribute)
{
	uint64_t n = 0;

	EQUAL(cuMemPoolGetAttribute(pool, attribute, &n), 0);
	return n;
}

static void memory_of_pools_goes_out_and_comes_back(void)
{
	static const uint64_t sizes[] = {100, 70000, MiB, 5 * MiB, 33 * MiB, 80 * MiB};
	CUmemPoolProps props = {.type = 1, .location = {CU_MEM_LOCATION_DEVICE, 0}};
	CUdeviceptr p[12], freed;
	CUmemPool pool;

	begin_swap();
	EQUAL(cuMemPoolCreate(&pool, &props), 0);
	for (unsigned i = 0; i < 12; i++) {
		EQUAL(i % 2 ? cuMemAllocAsync(&p[i], sizes[i / 2], NULL) : cuMemAllocFromPoolAsync(&p[i], sizes[i / 2], pool, NULL), 0);
		fill(p[i], sizes[i / 2], i);
	}
	EQUAL(cuMemAllocAsync(&freed, 40 * MiB, NULL), 0);
	EQUAL(cuMemFreeAsync(freed, NULL), 0);
	EQUAL(stub_card_used(0), used());
	for (int round = 0; round < 10; round++) {
		out();
		EQUAL(stub_card_used(0), CONTEXT);
		in();
		for (unsigned i = 0; i < 12; i++)
			CHECK(filled(p[i], sizes[i / 2], i));
	}
	EQUAL(cuMemFree_v2(p[0]), 0); /* all ways to free it */
	EQUAL(cuMemFreeAsync_ptsz(p[1], NULL), 0);
	for (unsigned i = 2; i < 12; i++)
		EQUAL(cuMemFreeAsync(p[i], NULL), 0);
	EQUAL(cuMemFreeAsync(p[5], NULL), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuMemPoolDestroy(pool), 0);
	EQUAL(used(), CONTEXT);
	EQUAL(stub_card_used(0), CONTEXT);
}

static void a_pool_gives_what_was_freed_to_who_may_have_it(void)
{
	static const struct stub_kernel slow = {.ns = 200 * MS};
	CUstream one, two;
	CUdeviceptr p, q, r;
	CUmemPool pool;
	uint64_t most = UINT64_MAX;

	begin_swap();
	EQUAL(real_cuDeviceGetMemPool(&pool, 0), 0);
	EQUAL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_THRESHOLD, &most), 0);
	EQUAL(real_cuStreamCreate(&one, 1), 0);
	EQUAL(real_cuStreamCreate(&two, 1), 0);
	EQUAL(cuMemAllocAsync(&p, 32 * MiB, one), 0);
	EQUAL(cuLaunchKernel((CUfunction)(uintptr_t)&slow, 1, 1, 1, 1, 1, 1, 0, one, NULL, NULL), 0);
	EQUAL(cuMemFreeAsync(p, one), 0);
	EQUAL(cuMemAllocAsync(&q, 32 * MiB, two), 0);
	CHECK(q != p); /* the first stream still uses it */
	EQUAL(cuMemAllocAsync(&r, 32 * MiB, one), 0);
	EQUAL(r, p);   /* and may have it again */
	EQUAL(pool_says(pool, CU_MEMPOOL_USED_CURRENT), 64 * MiB);
	EQUAL(cuMemFreeAsync(r, one), 0);
	EQUAL(real_cuStreamSynchronize(one), 0);
	EQUAL(cuMemAllocAsync(&r, 32 * MiB, two), 0);
	EQUAL(r, p);   /* it is over there now */
	EQUAL(cuMemFreeAsync(r, two), 0);
	EQUAL(cuMemFreeAsync(q, two), 0);
	EQUAL(pool_says(pool, CU_MEMPOOL_USED_CURRENT), 0);
	EQUAL(pool_says(pool, CU_MEMPOOL_USED_HIGH), 64 * MiB);
	EQUAL(pool_says(pool, CU_MEMPOOL_RESERVED_CURRENT), 64 * MiB);
	EQUAL(used(), CONTEXT + 64 * MiB);
	EQUAL(cuMemAlloc_v2(&p, 440 * MiB), 0); /* what is freed gives way */
	EQUAL(used(), CONTEXT + 440 * MiB);
	EQUAL(cuMemAllocAsync(&q, 32 * MiB, two), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(cuMemFreeAsync(p, two), 0); /* no memory of a pool: freed all the same */
	EQUAL(used(), CONTEXT);
	EQUAL(cuMemAllocAsync(&q, 32 * MiB, two), 0);
	EQUAL(cuMemFreeAsync(q, two), 0);
	EQUAL(cuMemPoolTrimTo(pool, 0), 0);
	EQUAL(used(), CONTEXT);
}

static void a_pool_that_is_exported_stays_the_drivers(void)
{
	CUmemPoolProps props = {.type = 1, .handle_types = 1, .location = {CU_MEM_LOCATION_DEVICE, 0}};
	struct swap_result r;
	CUdeviceptr p;
	CUmemPool pool;

	begin_swap();
	EQUAL(cuMemPoolCreate(&pool, &props), 0);
	EQUAL(cuMemAllocFromPoolAsync(&p, 32 * MiB, pool, NULL), 0);
	swap_out(UINT64_MAX, &r);
	CHECK(!r.done && strstr(r.why, "pools"));
	EQUAL(cuMemFreeAsync(p, NULL), 0);
	out_and_in();
}

static void a_pools_memory_goes_with_its_context(void)
{
	CUcontext second;
	CUdeviceptr p, q;

	begin_swap();
	EQUAL(cuCtxCreate_v2(&second, 0, 0), 0);
	EQUAL(cuMemAllocAsync(&p, 20 * MiB, NULL), 0);
	EQUAL(cuMemAllocAsync(&q, 20 * MiB, NULL), 0);
	EQUAL(cuMemFreeAsync(q, NULL), 0);
	EQUAL(cuCtxDestroy_v2(second), 0);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	out_and_in();
	EQUAL(cuMemAllocAsync(&q, 20 * MiB, NULL), 0);
	EQUAL(cuMemFreeAsync(q, NULL), 0);
	EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
}

MAIN(T(memory_of_pools_goes_out_and_comes_back), T(a_pool_gives_what_was_freed_to_who_may_have_it),
	T(a_pool_that_is_exported_stays_the_drivers), T(a_pools_memory_goes_with_its_context),
	T(the_programs_own_memory_goes_out_and_comes_back), T(however_it_is_mapped), T(only_its_own_handles_are_translated),
	T(part_of_it_goes_and_a_full_card_changes_nothing), T(it_outlives_its_context_and_meets_the_limit),
	T(a_capture_ends_before_anything_moves))
