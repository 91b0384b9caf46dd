/* Random calls against a model of what they should charge, with and without swapping in between. */
#include "check.h"

#define ENTRY(name) extern __typeof__(*(fn_##name)0) name
ENTRY(cuInit); ENTRY(cuDevicePrimaryCtxRetain); ENTRY(cuMemAlloc_v2); ENTRY(cuMemAllocPitch_v2); ENTRY(cuMemFree_v2); ENTRY(cuMemAllocManaged); ENTRY(cuMemCreate);
ENTRY(cuMemRelease); ENTRY(cuMemMap); ENTRY(cuMemUnmap); ENTRY(cuArrayCreate_v2); ENTRY(cuArrayDestroy); ENTRY(cuMemAllocAsync); ENTRY(cuMemFreeAsync);
ENTRY(cuMemGetInfo_v2); ENTRY(cuMemsetD8_v2); ENTRY(cuMemcpyDtoH_v2);

#define LIMIT (256 * MiB)
#define CONTEXT (64 * MiB)
#define SLOTS 48

enum kind { NONE, PLAIN, MANAGED, PITCH, HANDLE, MAPPED, ARRAY, ASYNC };
static struct { enum kind kind; uint64_t key, charged, size; unsigned char mark; } held[SLOTS];
static uint64_t random_state;

static uint64_t rnd(uint64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % n;
}

static uint64_t page(uint64_t n) { return (n + 2 * MiB - 1) / (2 * MiB) * (2 * MiB); }
static uint64_t model_size(uint64_t n) { return n > MiB ? page(n) : (n + 511) / 512 * 512; }

/* Pools are charged by what the driver has reserved: the model asks it as well. */
static uint64_t pool_reserved(void)
{
	CUmemPool pool;
	uint64_t n = 0;
	real_cuDeviceGetMemPool(&pool, 0);
	real_cuMemPoolGetAttribute(pool, CU_MEMPOOL_RESERVED_CURRENT, &n);
	return n;
}

static uint64_t model_used(void)
{
	uint64_t sum = CONTEXT + pool_reserved();
	for (int i = 0; i < SLOTS; i++)
		if (held[i].kind != NONE && held[i].kind != ASYNC)
			sum += held[i].charged;
	return sum;
}

static CUresult take(int i, enum kind kind, uint64_t n)
{
	static const CUmemProp prop = {.type = 1, .location = {CU_MEM_LOCATION_DEVICE, 0}};
	CUdeviceptr p = 0;
	CUmemHandle h;
	CUarray a = NULL;
	size_t pitch;
	CUarrayDesc desc = {256, (n >> 8) + 1, 1, 1};
	CUresult r;

	held[i].size = held[i].charged = model_size(n);
	switch (kind) {
	case PLAIN: r = cuMemAlloc_v2(&p, n); break;
	case MANAGED: r = cuMemAllocManaged(&p, n, 1); break;
	case PITCH: r = cuMemAllocPitch_v2(&p, &pitch, 1000, (n >> 10) + 1, 4); held[i].size = held[i].charged = model_size(1024 * ((n >> 10) + 1)); break;
	case ASYNC: r = cuMemAllocAsync(&p, n, NULL); break;
	case ARRAY: r = cuArrayCreate_v2(&a, &desc); p = (uintptr_t)a; held[i].charged = (256 * desc.height + 65535) / 65536 * 65536; break;
	default:
		held[i].size = held[i].charged = page(n);
		r = cuMemCreate(&h, page(n), &prop, 0);
		p = h;
		if (r == CUDA_SUCCESS && kind == MAPPED) {
			EQUAL(real_cuMemAddressReserve(&p, page(n), 0, 0, 0), 0);
			EQUAL(cuMemMap(p, page(n), 0, h, 0), 0);
			EQUAL(cuMemRelease(h), 0);
		}
	}
	if (r == CUDA_SUCCESS) {
		held[i].kind = kind;
		held[i].key = p;
	}
	return r;
}

static void give(int i)
{
	CUresult r = CUDA_SUCCESS;
	switch (held[i].kind) {
	case PLAIN: case MANAGED: case PITCH: r = cuMemFree_v2(held[i].key); break;
	case ASYNC: r = cuMemFreeAsync(held[i].key, NULL); break;
	case ARRAY: r = cuArrayDestroy((CUarray)(uintptr_t)held[i].key); break;
	case HANDLE: r = cuMemRelease(held[i].key); break;
	case MAPPED: r = cuMemUnmap(held[i].key, held[i].size); break;
	case NONE: break;
	}
	EQUAL(r, 0);
	held[i].kind = NONE;
}

static void begin(const char *extra)
{
	CUcontext ctx;
	check_limits(extra, "device * memory 268435456");
	EQUAL(cuInit(0), 0);
	EQUAL(cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
}

static void charges_follow_the_model(void)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		random_state = seed * 0x9e3779b97f4a7c15;
		if (seed == 1)
			begin("");
		for (int step = 0; step < 2000; step++) {
			int i = (int)rnd(SLOTS);
			if (held[i].kind != NONE) {
				give(i);
			} else {
				enum kind kind = (enum kind)(1 + rnd(7));
				uint64_t n = rnd(4) ? 1 + rnd(MiB) : 1 + rnd(60 * MiB), before = model_used();
				CUresult r = take(i, kind, n);
				CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
				/* refused only if it did not fit, even with the pool's idle memory given up */
				if (r != CUDA_SUCCESS && kind != ASYNC)
					CHECK(before + held[i].charged > LIMIT);
			}
			/* a freed pool's memory is refunded at the next look */
			pools_refresh(&session.device[0], false);
			EQUAL(container_used(session.container, 0), model_used());
			CHECK(container_used(session.container, 0) <= LIMIT);
			CHECK(stub_card_used(0) <= LIMIT);
		}
		for (int i = 0; i < SLOTS; i++)
			give(i);
		pools_refresh(&session.device[0], true);
		EQUAL(container_used(session.container, 0), CONTEXT);
		EQUAL(stub_card_used(0), CONTEXT);
	}
}

/* Contents survive whatever order of allocations, frees, swaps out (in part or whole) and in. */
static void contents_survive_swapping(void)
{
	struct swap_result r;
	uint64_t missing;
	unsigned char c;

	random_state = 42;
	begin("swap on\n");
	for (int step = 0; step < 600; step++) {
		int i = (int)rnd(SLOTS);
		if (rnd(8) == 0) {
			swap_out(rnd(2) ? UINT64_MAX : 1 + rnd(64 * MiB), &r);
			CHECK(r.done);
			if (rnd(2)) {
				swap_out(1 + rnd(8 * MiB), &r);
				CHECK(r.done || r.bytes == 0);
			}
			swap_in(&r, &missing);
			CHECK(r.done);
		} else if (held[i].kind != NONE) {
			EQUAL(cuMemcpyDtoH_v2(&c, held[i].key, 1), 0);
			EQUAL(c, held[i].mark);
			EQUAL(cuMemcpyDtoH_v2(&c, held[i].key + held[i].size - 1, 1), 0);
			EQUAL(c, held[i].mark);
			give(i);
		} else {
			uint64_t n = rnd(3) ? 1 + rnd(MiB - 1) : 1 + rnd(24 * MiB);
			if (take(i, PLAIN, n) != CUDA_SUCCESS)
				continue;
			held[i].size = n;
			held[i].mark = (unsigned char)rnd(256);
			EQUAL(cuMemsetD8_v2(held[i].key, held[i].mark, 1), 0);
			EQUAL(cuMemsetD8_v2(held[i].key + n - 1, held[i].mark, 1), 0);
		}
		CHECK(container_used(session.container, 0) <= LIMIT);
		EQUAL(stub_card_used(0), container_used(session.container, 0));
	}
	for (int i = 0; i < SLOTS; i++)
		give(i);
	EQUAL(container_used(session.container, 0), CONTEXT);
	EQUAL(stub_card_used(0), CONTEXT);
}

MAIN(T(charges_follow_the_model), T(contents_survive_swapping))
