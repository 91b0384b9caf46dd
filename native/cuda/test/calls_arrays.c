/* Arrays go out and come back with their handles, through the library, against the tests' driver. */
#include "calls.h"
#include "moves.h"
#include "../array_memory.h"
#include "../blocks.h"

#define FLOAT 0x20
#define BYTE 0x01
#define HALF 0x10

struct kind { const char *name; CUarray3DDesc desc; unsigned levels; };
static const struct kind kinds[] = {
	{"1D", {5000, 0, 0, FLOAT, 1, 0}, 0}, {"1D layered", {300, 0, 7, HALF, 2, CU_ARRAY_LAYERED}, 0},
	{"2D", {1000, 300, 0, FLOAT, 4, CU_ARRAY_SURFACE}, 0}, {"2D of bytes", {777, 333, 0, BYTE, 1, CU_ARRAY_GATHER}, 0},
	{"2D layered", {200, 100, 5, 0x0a, 2, CU_ARRAY_LAYERED | CU_ARRAY_SURFACE}, 0}, {"3D", {60, 70, 80, FLOAT, 1, 0}, 0},
	{"cubemap", {64, 64, 6, FLOAT, 4, CU_ARRAY_CUBEMAP}, 0}, {"1D with levels", {4096, 0, 0, FLOAT, 1, 0}, 5},
	{"2D with levels", {500, 300, 0, BYTE, 4, 0}, 99}, {"layered with levels", {256, 128, 4, HALF, 1, CU_ARRAY_LAYERED}, 4},
	{"3D with levels", {100, 50, 200, FLOAT, 1, 0}, 8},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static void *make(const struct kind *k)
{
	void *a = NULL;

	EQUAL(k->levels ? cuMipmappedArrayCreate(&a, &k->desc, k->levels) : cuArray3DCreate_v2(&a, &k->desc), 0);
	return a;
}

static CUresult unmake(const struct kind *k, void *a) { return k->levels ? cuMipmappedArrayDestroy(a) : cuArrayDestroy(a); }

static uint64_t level_of(size_t n, unsigned level) { return n >> level ? n >> level : 1; }

/* All levels of an array, written with a pattern or compared with it. */
static void go_over(const struct kind *k, void *a, unsigned seed, bool write)
{
	unsigned levels = 0;
	CUarray level = a;

	while (!k->levels ? levels < 1 : cuMipmappedArrayGetLevel(&level, a, levels) == CUDA_SUCCESS) {
		bool layers = k->desc.flags & (CU_ARRAY_LAYERED | CU_ARRAY_CUBEMAP);
		uint64_t element = k->desc.channels * (k->desc.format == BYTE ? 1u : k->desc.format == HALF ? 2u : 4u);
		uint64_t row = level_of(k->desc.width, levels) * element, rows = level_of(k->desc.height, levels);
		uint64_t slices = layers ? k->desc.depth : level_of(k->desc.depth, levels), n = row * rows * slices;
		unsigned char *b = malloc(n);
		CUcopyEnd host = {.type = CU_MEMORY_HOST, .host = b, .pitch = row, .height = rows}, array = {.type = CU_MEMORY_ARRAY, .array = level};
		CUcopy3D c = {write ? host : array, write ? array : host, row, rows, slices};
		for (uint64_t i = 0; i < n && write; i++)
			b[i] = (unsigned char)((i + levels) * 31 + seed);
		EQUAL(cuMemcpy3D_v2(&c), 0);
		for (uint64_t i = 0; i < n && !write; i++)
			if (b[i] != (unsigned char)((i + levels) * 31 + seed)) {
				fprintf(stderr, "%s: level %u differs at byte %llu\n", k->name, levels, (unsigned long long)i);
				_exit(1);
			}
		free(b);
		levels++;
	}
}

static void arrays_of_every_kind_go_out_and_come_back(void)
{
	void *a[KINDS];
	uint64_t before;
	CUdeviceptr p;

	begin_swap();
	for (unsigned i = 0; i < KINDS; i++) {
		a[i] = make(&kinds[i]);
		go_over(&kinds[i], a[i], i, true);
	}
	EQUAL(cuMemAlloc_v2(&p, 20 * MiB), 0);
	fill(p, 20 * MiB, 1);
	before = used();
	EQUAL(stub_card_used(0), before); /* what is counted is what the card has given */
	CHECK(!swap_refusal());
	for (unsigned round = 0; round < 10; round++) {
		out();
		EQUAL(stub_card_used(0), CONTEXT);
		EQUAL(used(), before);
		in();
		EQUAL(stub_card_used(0), before);
		for (unsigned i = 0; i < KINDS; i++) {
			go_over(&kinds[i], a[i], i + round, false);
			go_over(&kinds[i], a[i], i + round + 1, true);
		}
	}
	CHECK(filled(p, 20 * MiB, 1));
	for (unsigned i = 0; i < KINDS; i++)
		EQUAL(unmake(&kinds[i], a[i]), 0);
	EQUAL(unmake(&kinds[2], a[2]), CUDA_ERROR_INVALID_HANDLE);
	EQUAL(cuMemFree_v2(p), 0);
	EQUAL(used(), CONTEXT);
	EQUAL(stub_card_used(0), CONTEXT);
	CHECK(!blocks);
}

/* Host memory comes in slabs: a row may lie across two of them, and a level, too. */
static void a_large_array_lies_across_slabs(void)
{
	static const struct kind wide = {"wide", {35000, 1500, 0, FLOAT, 1, 0}, 0}, deep = {"deep", {1000, 333, 100, BYTE, 2, 0}, 3};
	struct swap_result r;
	CUdeviceptr p;
	void *a, *b;

	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 22 * MiB), 0);
	a = make(&wide);
	b = make(&deep);
	go_over(&wide, a, 3, true);
	go_over(&deep, b, 4, true);
	out();
	EQUAL(stub_card_used(0), CONTEXT);
	in();
	go_over(&wide, a, 3, false);
	go_over(&deep, b, 4, false);
	swap_out(MiB, &r); /* a part of it */
	CHECK(r.done && r.bytes < 220 * MiB && stub_card_used(0) > CONTEXT);
	in();
	go_over(&wide, a, 3, false);
	go_over(&deep, b, 4, false);
}

static void arrays_meet_the_limit_and_small_ones_share_a_page(void)
{
	static const struct way ways_here[] = {{"cuArrayCreate", take_array, give_array}, {"cuArray3DCreate", take_array3, give_array}, {"cuMipmappedArrayCreate", take_mips, give_mips}};
	CUarrayDesc small = {128, 128, FLOAT, 1};
	CUarray a[65];
	uint64_t key[32];

	begin_swap();
	for (int w = 0; w < 3; w++) {
		int n = 0;
		while (ways_here[w].take(32 * MiB, &key[n]) == CUDA_SUCCESS)
			CHECK(++n < 32);
		EQUAL(n, 14); /* 64 MiB are the context's */
		EQUAL(stub_card_used(0), LIMIT);
		while (n--)
			EQUAL(ways_here[w].give(key[n]), 0);
		EQUAL(used(), CONTEXT);
	}
	for (int i = 0; i < 65; i++)
		EQUAL(cuArrayCreate_v2(&a[i], &small), 0);
	EQUAL(used(), CONTEXT + 3 * 2 * MiB);
	EQUAL(stub_card_used(0), used());
	EQUAL(cuArrayDestroy(a[3]), 0);
	EQUAL(cuArrayDestroy(a[4]), 0);
	EQUAL(cuArrayDestroy(a[64]), 0);
	EQUAL(used(), CONTEXT + 2 * 2 * MiB);
	small.height = 256; /* where the two were */
	EQUAL(cuArrayCreate_v2(&a[3], &small), 0);
	EQUAL(used(), CONTEXT + 2 * 2 * MiB);
	out_and_in();
	for (int i = 0; i < 64; i++)
		if (i != 4)
			EQUAL(cuArrayDestroy(a[i]), 0);
	EQUAL(used(), CONTEXT);
	EQUAL(stub_card_used(0), CONTEXT);
}

static void arrays_lie_as_the_driver_wants_them(void)
{
	CUarrayDesc small = {128, 128, FLOAT, 1};
	CUarray a[8];

	begin_swap();
	for (unsigned align = 512; align <= 4 * MiB; align *= 16) {
		char text[16];
		snprintf(text, sizeof text, "%u", align);
		setenv("STUB_ALIGN", text, 1);
		for (int i = 0; i < 8; i++)
			EQUAL(cuArrayCreate_v2(&a[i], &small), 0);
		EQUAL(used(), CONTEXT + (align < 2 * MiB ? 1 + 7 * align / (2 * MiB) : 8) * 2 * MiB);
		CHECK(!swap_refusal());
		out_and_in();
		for (int i = 0; i < 8; i++)
			EQUAL(cuArrayDestroy(a[i]), 0);
	}
	EQUAL(used(), CONTEXT);
}

static void a_program_sees_the_arrays_it_asked_for(void)
{
	CUarray3DDesc own = {512, 512, 0, FLOAT, 1, CU_ARRAY_DEFERRED}, got;
	CUarrayMemory memory;
	CUarray3DDescV1 old;
	CUarray level, again;
	void *a, *m, *d;

	begin_swap();
	a = make(&kinds[2]);
	m = make(&kinds[9]);
	EQUAL(cuArray3DGetDescriptor_v2(&got, a), 0);
	CHECK(!memcmp(&got, &kinds[2].desc, sizeof got));
	EQUAL(cuArray3DGetDescriptor(&old, a), 0);
	EQUAL(old.flags, kinds[2].desc.flags);
	EQUAL(cuMipmappedArrayGetLevel(&level, m, 2), 0);
	EQUAL(cuMipmappedArrayGetLevel(&again, m, 2), 0);
	CHECK(level == again);
	EQUAL(cuMipmappedArrayGetLevel(&again, m, 4), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuArray3DGetDescriptor_v2(&got, level), 0);
	EQUAL(got.flags, CU_ARRAY_LAYERED);
	EQUAL(got.width, 64);
	EQUAL(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
	EQUAL(cuArrayGetMemoryRequirements(&memory, a, 0), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuArrayGetMemoryRequirements(&memory, level, 0), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuMipmappedArrayGetMemoryRequirements(&memory, m, 0), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuArrayGetSparseProperties(&memory, a), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuMipmappedArrayGetSparseProperties(&memory, m), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuArray3DCreate_v2(&d, &own), 0); /* its own without memory is its own */
	EQUAL(cuArrayGetMemoryRequirements(&memory, d, 0), 0);
	EQUAL(cuArray3DGetDescriptor_v2(&got, d), 0);
	EQUAL(got.flags, CU_ARRAY_DEFERRED);
	CHECK(!swap_refusal()); /* it holds nothing */
	EQUAL(cuArrayDestroy(d), 0);
}

/* Whatever the driver makes only with memory is the driver's: counted, and refused by name before anything moves. */
static void what_cannot_move_is_refused_ahead(void)
{
	static const CUarray3DDesc stay[] = {
		{256, 256, 0, FLOAT, 1, 0x10}, {256, 256, 0, 0x91, 1, 0}, {256, 256, 0, 0xb0, 3, 0}, {256, 256, 0, FLOAT, 1, 0},
	};
	struct swap_result r;
	CUarray a;
	void *m;

	begin_swap();
	for (unsigned i = 0; i < sizeof stay / sizeof *stay; i++) {
		setenv("STUB_DEFERRED", i == 3 ? "off" : "on", 1);
		EQUAL(cuArray3DCreate_v2(&a, &stay[i]), 0);
		CHECK(!strcmp(swap_refusal(), "arrays"));
		CHECK(used() > CONTEXT);
		swap_out(UINT64_MAX, &r);
		CHECK(!r.done && !strcmp(r.why, "arrays"));
		EQUAL(cuArrayDestroy(a), 0);
		EQUAL(used(), CONTEXT);
	}
	EQUAL(cuMipmappedArrayCreate(&m, &kinds[8].desc, 3), 0);
	CHECK(swap_refusal());
	EQUAL(cuMipmappedArrayDestroy(m), 0);
	setenv("STUB_DEFERRED", "on", 1);
	setenv("STUB_MAP_FAILS", "0", 1); /* made without memory, and then none can be put behind it */
	EQUAL(cuArray3DCreate_v2(&a, &kinds[2].desc), 0);
	CHECK(!strcmp(swap_refusal(), "arrays"));
	EQUAL(stub_card_used(0), used());
	EQUAL(cuArrayDestroy(a), 0);
	unsetenv("STUB_MAP_FAILS");
	EQUAL(cuArray3DCreate_v2(&a, &(CUarray3DDesc){0, 4, 4, FLOAT, 1, 0}), CUDA_ERROR_INVALID_VALUE);
	EQUAL(used(), CONTEXT);
	EQUAL(stub_card_used(0), CONTEXT);
	out_and_in();
}

static void failures_change_nothing(void)
{
	struct swap_result r;
	uint64_t missing;
	void *a[3];

	begin_swap();
	for (unsigned i = 0; i < 3; i++) {
		a[i] = make(&kinds[i + 8]);
		go_over(&kinds[i + 8], a[i], i, true);
	}
	out();
	setenv("STUB_MEMORY", "68157440", 1); /* a MiB more than the context */
	swap_in(&r, &missing);
	CHECK(!r.done && missing > 0 && swap_is_out());
	setenv("STUB_MEMORY", "1073741824", 1);
	for (int fail = 0; fail < 3; fail++) {
		char n[4];
		snprintf(n, sizeof n, "%d", fail);
		setenv("STUB_MAP_FAILS", n, 1);
		swap_in(&r, &missing);
		CHECK(!r.done && swap_is_out());
		EQUAL(stub_card_used(0), CONTEXT);
	}
	unsetenv("STUB_MAP_FAILS");
	in();
	for (unsigned i = 0; i < 3; i++)
		go_over(&kinds[i + 8], a[i], i, false);
	void *flat = make(&kinds[2]);
	go_over(&kinds[2], flat, 9, true);
	setenv("STUB_DESTROY_FAILS", "1", 1);
	EQUAL(cuArrayDestroy(flat), 999); /* it is still there, */
	unsetenv("STUB_DESTROY_FAILS");
	CHECK(array_is_ours(flat));
	out_and_in();
	EQUAL(cuArrayDestroy(flat), 0);
	for (unsigned i = 0; i < 3; i++)
		EQUAL(cuMipmappedArrayDestroy(a[i]), 0);
	EQUAL(stub_card_used(0), CONTEXT);
	EQUAL(used(), CONTEXT);
}

static void *destroy(void *a)
{
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuArrayDestroy(a), 0);
	return NULL;
}

static void *create(void *a)
{
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuArray3DCreate_v2(a, &kinds[2].desc), 0);
	return NULL;
}

static void calls_wait_while_it_is_out(void)
{
	void *gone, *stays, *made = NULL;
	pthread_t t[2];

	begin_swap();
	gone = make(&kinds[2]);
	stays = make(&kinds[5]);
	go_over(&kinds[5], stays, 5, true);
	out();
	EQUAL(pthread_create(&t[0], NULL, destroy, gone), 0);
	EQUAL(pthread_create(&t[1], NULL, create, &made), 0);
	while (atomic_load(&memory_calls.waiting) < 2)
		sleep_ns(MS);
	EQUAL(stub_card_used(0), CONTEXT);
	in();
	EQUAL(pthread_join(t[0], NULL), 0);
	EQUAL(pthread_join(t[1], NULL), 0);
	go_over(&kinds[2], made, 6, true);
	out_and_in();
	go_over(&kinds[5], stays, 5, false);
	go_over(&kinds[2], made, 6, false);
}

static _Atomic bool enough;
static void *come_and_go(void *arg)
{
	unsigned n = (unsigned)(uintptr_t)arg;

	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	for (unsigned i = 0; !atomic_load(&enough); i++) {
		const struct kind *k = &kinds[(i + n) % KINDS];
		void *a = make(k);
		go_over(k, a, i, true);
		sched_yield();
		go_over(k, a, i, false);
		EQUAL(unmake(k, a), 0);
	}
	return NULL;
}

static void threads_make_and_destroy_them_meanwhile(void)
{
	pthread_t t[3];

	begin_swap();
	for (uintptr_t i = 0; i < 3; i++)
		EQUAL(pthread_create(&t[i], NULL, come_and_go, (void *)(i * 3)), 0);
	for (int i = 0; i < 10; i++) {
		sleep_ns(5 * MS);
		out_and_in();
	}
	atomic_store(&enough, true);
	for (int i = 0; i < 3; i++)
		EQUAL(pthread_join(t[i], NULL), 0);
	EQUAL(used(), CONTEXT);
	EQUAL(stub_card_used(0), CONTEXT);
}

static void they_go_with_their_context(void)
{
	CUcontext second, now;
	CUarray3DDesc got;
	void *here, *there;

	begin_swap();
	here = make(&kinds[2]);
	go_over(&kinds[2], here, 1, true);
	EQUAL(cuCtxCreate_v2(&second, 0, 0), 0);
	there = make(&kinds[2]);
	make(&kinds[8]);
	out_and_in();
	EQUAL(real_cuCtxSetCurrent(second), 0);
	void *other = make(&kinds[0]);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuArrayDestroy(other), 0); /* from another context, which stays the current one */
	EQUAL(real_cuCtxGetCurrent(&now), 0);
	CHECK(now == ctx);
	EQUAL(cuCtxDestroy_v2(second), 0);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuArray3DGetDescriptor_v2(&got, there), CUDA_ERROR_INVALID_HANDLE);
	out_and_in();
	go_over(&kinds[2], here, 1, false);
	EQUAL(cuArrayDestroy(here), 0);
	EQUAL(stub_card_used(0), CONTEXT);
	CHECK(!blocks);
}

static void a_child_has_none_of_them(void)
{
	void *a;
	pid_t pid;

	begin_swap();
	a = make(&kinds[5]);
	go_over(&kinds[5], a, 5, true);
	CHILD(pid, {
		CHECK(!array_is_ours(a));
		EQUAL(cuInit(0), 0);
		EQUAL(cuCtxCreate_v2(&ctx, 0, 0), 0);
		void *mine = make(&kinds[2]);
		go_over(&kinds[2], mine, 2, true);
		out_and_in();
		go_over(&kinds[2], mine, 2, false);
	});
	check_exit(pid);
	out_and_in();
	go_over(&kinds[5], a, 5, false);
}

MAIN(T(arrays_of_every_kind_go_out_and_come_back), T(a_large_array_lies_across_slabs), T(arrays_meet_the_limit_and_small_ones_share_a_page),
	T(arrays_lie_as_the_driver_wants_them),
	T(a_program_sees_the_arrays_it_asked_for), T(what_cannot_move_is_refused_ahead), T(failures_change_nothing), T(calls_wait_while_it_is_out),
	T(threads_make_and_destroy_them_meanwhile), T(they_go_with_their_context), T(a_child_has_none_of_them))
