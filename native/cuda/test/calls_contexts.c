/* Contexts that end while memory is off the card, while it moves, and while others have it, against the tests' driver. */
#include "processes.h"
#include "../blocks.h"
#include "../hold.h"

static CUcontext second_context(void)
{
	CUcontext made;

	EQUAL(cuCtxCreate_v2(&made, 0, 0), 0);
	return made;
}

static void end_context(CUcontext c)
{
	EQUAL(cuCtxDestroy_v2(c), 0);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
}

static uint64_t held(void) { return atomic_load(&session_row()->held[0]); }
static uint64_t swapped(void) { return atomic_load(&session_row()->swapped[0]); }

/* What was its alone is free at once, on the host, too; the rest comes back. */
static void one_may_end_while_its_memory_is_out(void)
{
	CUarrayDesc array = {1024, 1024, 0x20, 1};
	CUcontext second;
	CUdeviceptr mine, p;
	CUmemHandle h;
	CUarray a;

	begin_swap();
	EQUAL(cuMemAlloc_v2(&mine, 20 * MiB), 0);
	fill(mine, 20 * MiB, 3);
	second = second_context();
	EQUAL(cuMemAlloc_v2(&p, 30 * MiB), 0);
	EQUAL(cuMemAlloc_v2(&p, 100), 0);
	EQUAL(cuMemAllocAsync(&p, 10 * MiB, NULL), 0);
	EQUAL(cuArrayCreate_v2(&a, &array), 0);
	EQUAL(cuMemCreate(&h, 8 * MiB, &on_device, 0), 0); /* this outlives it */
	for (int round = 0; round < 2; round++) {
		out();
		if (!round)
			end_context(second);
		EQUAL(held(), 28 * MiB);
		EQUAL(swapped(), 28 * MiB);
		EQUAL(stub_card_used(0), CONTEXT);
		in();
		CHECK(filled(mine, 20 * MiB, 3));
		EQUAL(stub_card_used(0), CONTEXT + 28 * MiB);
		EQUAL(swapped(), 0);
	}
	EQUAL(cuMemRelease(h), 0);
	EQUAL(cuMemFree_v2(mine), 0);
	EQUAL(held(), 0);
	CHECK(!blocks);
}

/* Nothing of it is left then, and the calls still wait until it is let in. */
static void all_of_it_may_go_while_it_is_out(void)
{
	CUcontext second;
	CUdeviceptr p;

	begin_swap();
	second = second_context();
	EQUAL(cuMemAlloc_v2(&p, 30 * MiB), 0);
	out();
	end_context(second);
	EQUAL(held(), 0);
	CHECK(swap_is_out() && atomic_load(&memory_calls.held) == 1);
	out(); /* once more, as an agent does that looks for new processes */
	EQUAL(atomic_load(&memory_calls.held), 1);
	in();
	EQUAL(atomic_load(&memory_calls.held), 0);
	EQUAL(cuMemAlloc_v2(&p, 2 * MiB), 0);
}

static _Atomic bool moving;
static _Atomic int rounds;
static void *make_and_end(void *arg)
{
	CUdeviceptr p;
	(void)arg;

	while (atomic_load(&moving)) {
		CUcontext c = second_context();
		EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0);
		EQUAL(cuMemsetD32Async(p, 9, MiB, NULL), 0);
		EQUAL(cuCtxDestroy_v2(c), 0);
		atomic_fetch_add(&rounds, 1);
	}
	return NULL;
}

static void one_may_end_while_memory_moves(void)
{
	CUdeviceptr mine;
	pthread_t t;

	begin_swap();
	EQUAL(cuMemAlloc_v2(&mine, 20 * MiB), 0);
	fill(mine, 20 * MiB, 3);
	atomic_store(&moving, true);
	EQUAL(pthread_create(&t, NULL, make_and_end, NULL), 0);
	for (int i = 0; i < 50; i++)
		out_and_in();
	atomic_store(&moving, false);
	EQUAL(pthread_join(t, NULL), 0);
	CHECK(filled(mine, 20 * MiB, 3));
	EQUAL(held() + CONTEXT, stub_card_used(0));
}

/* A hold looks what is in flight, and gives up after a while; its thread waits on. */
static void one_may_end_while_it_is_waited_for(void)
{
	static struct stub_kernel slow = {.ns = 700 * MS};
	CUcontext second;
	CUdeviceptr p;

	begin_swap();
	second = second_context();
	EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0);
	EQUAL(launch(&slow), 0);
	CHECK(!hold_begin(false));
	end_context(second);
	UNTIL(hold_begin(false));
	hold_end();
	out_and_in();
}

static void one_may_end_while_calls_are_held(void)
{
	pthread_t t;

	begin_swap();
	atomic_store(&moving, true);
	EQUAL(pthread_create(&t, NULL, make_and_end, NULL), 0);
	for (int i = 0; atomic_load(&rounds) < 50; i++) {
		hold_begin(i % 4 == 3);
		if (i % 2)
			hold_end();
	}
	hold_end();
	atomic_store(&moving, false);
	EQUAL(pthread_join(t, NULL), 0);
	EQUAL(held() + CONTEXT, stub_card_used(0));
}

/* ---- memory that another process has ---- */

static void what_another_has_outlives_its_context(bool own)
{
	CUdeviceptr p, q;

	begin_two();
	if (own)
		OK(a, DO_SECOND);
	p = alloc(a, 16 * MiB);
	q = open_in(b, name(a, p));
	TELL(b, DO_FILL, q, 16 * MiB, 5);
	if (own)
		OK(a, DO_END_SECOND);
	else
		OK(a, DO_CONTEXT); /* there is none left */
	for (int round = 0; round < 2; round++) {
		OK(a, DO_OUT);
		EQUAL(card(b), 2 * CONTEXT);
		OK(a, DO_IN);
		back(b);
		CHECK(TELL(b, DO_FILLED, q, 16 * MiB, 5).c);
	}
	OK(b, DO_CLOSE, q);
	UNTIL(counted(a) == 2 * CONTEXT);
}
static void what_another_has_outlives_one_of_two_contexts(void) { what_another_has_outlives_its_context(true); }
static void what_another_has_outlives_the_last_context(void) { what_another_has_outlives_its_context(false); }

static void one_may_end_while_another_has_its_memory_that_is_out(void)
{
	CUdeviceptr q;

	begin_two();
	OK(a, DO_SECOND);
	q = open_in(b, name(a, alloc(a, 16 * MiB)));
	TELL(b, DO_FILL, q, 16 * MiB, 5);
	OK(a, DO_OUT);
	OK(a, DO_END_SECOND);
	OK(a, DO_IN);
	back(b);
	CHECK(TELL(b, DO_FILLED, q, 16 * MiB, 5).c);
}

/* Two small allocations lie in one page, and were opened in two contexts of which the first ends. */
static void what_is_opened_in_two_contexts_outlives_the_first(void)
{
	CUdeviceptr p, small[2], q[2];

	begin_two();
	p = alloc(b, 2 * MiB); /* of the context that stays */
	for (int i = 0; i < 2; i++) {
		small[i] = alloc(a, 4096);
		TELL(a, DO_FILL, small[i], 4096, 6 + (unsigned)i);
	}
	OK(b, DO_SECOND);
	q[0] = open_in(b, name(a, small[0]));
	OK(b, DO_FIRST);
	q[1] = open_in(b, name(a, small[1]));
	OK(b, DO_END_SECOND);
	for (int round = 0; round < 2; round++) {
		OK(a, DO_OUT);
		OK(b, DO_OUT);
		OK(b, DO_IN);
		OK(a, DO_IN);
		back(b);
		CHECK(TELL(b, DO_FILLED, q[1], 4096, 7).c);
	}
	EQUAL(TELL(b, DO_CLOSE, q[0]).c, CUDA_ERROR_INVALID_VALUE); /* it went with its context */
	OK(b, DO_CLOSE, q[1]);
	OK(b, DO_FREE, p);
}

MAIN(T(one_may_end_while_its_memory_is_out), T(all_of_it_may_go_while_it_is_out), T(one_may_end_while_memory_moves), T(one_may_end_while_it_is_waited_for), T(one_may_end_while_calls_are_held),
	T(what_another_has_outlives_one_of_two_contexts), T(what_another_has_outlives_the_last_context),
	T(one_may_end_while_another_has_its_memory_that_is_out), T(what_is_opened_in_two_contexts_outlives_the_first))
