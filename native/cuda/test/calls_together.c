/* Processes whose kernels wait for each other go out and come back, against the tests' driver. */
#include "../hold.h"
#include "processes.h"

#define SETTLED "\"settled\":true"

/* Holds both back until neither has anything in flight, as the agent does. */
static void hold_both(void)
{
	bool step = false;

	for (int64_t end = now_ns() + 60000 * MS;; step = !step) {
		const char *request = step ? "hold step" : "hold";
		bool all = says(a, request, SETTLED);
		all = says(b, request, SETTLED) && all;
		if (all && !step)
			return;
		CHECK(now_ns() < end);
	}
}

static void they_are_held_until_none_waits_for_another(void)
{
	CUdeviceptr p, q;

	begin_two();
	p = alloc(a, 16 * MiB);
	q = open_in(b, name(a, p));
	OK(a, DO_SET, p, 16 * MiB, 3);
	TELL(a, DO_MEET_ON, 0);
	TELL(b, DO_MEET_ON, 1);
	for (int round = 0; round < 10; round++) {
		int before = atomic_load(&together->rounds[round % 2]);
		hold_both();
		CHECK(says(round % 2 ? a : b, "out", "\"ok\":true"));
		CHECK(says(round % 2 ? b : a, "out", "\"ok\":true"));
		EQUAL(card(a), 2 * CONTEXT);
		CHECK(says(a, "in", "\"ok\":true") && says(b, "in", "\"ok\":true"));
		back(a);
		back(b);
		UNTIL(atomic_load(&together->rounds[round % 2]) > before + 4); /* both get on */
	}
	atomic_store(&together->over, true);
	TELL(a, DO_MET);
	TELL(b, DO_MET);
	EQUAL(TELL(b, DO_GET, q + 8 * MiB).b, 3);
}

/* Held back before the agent asked, with what the other waits for not launched yet. */
static void one_that_is_ahead_is_caught_up_with(void)
{
	begin_two();
	alloc(a, 4 * MiB);
	alloc(b, 4 * MiB);
	for (int i = 0; i < 3; i++)
		OK(b, DO_MEET, 1);
	CHECK(!says(b, "hold", SETTLED));
	UNTIL(says(a, "hold", SETTLED)); /* it has nothing in flight, and is not asked to go on */
	TELL(a, DO_MEET_ON, 0); /* it does, and its calls wait */
	TELL(b, DO_MEET_ON, 1);
	hold_both();
	CHECK(atomic_load(&together->rounds[0]) >= 3);
	CHECK(says(b, "out", "\"ok\":true") && says(a, "out", "\"ok\":true"));
	EQUAL(card(a), 2 * CONTEXT);
	atomic_store(&together->over, true);
	CHECK(says(a, "in", "\"ok\":true") && says(b, "in", "\"ok\":true"));
	TELL(a, DO_MET);
	TELL(b, DO_MET);
}

/* Nobody asked the others to wait: it is refused in time, and all go on. */
static void one_that_waits_for_another_is_refused(void)
{
	CUdeviceptr p, q;
	struct word w;

	begin_two();
	p = alloc(a, 16 * MiB);
	q = open_in(b, name(a, p));
	TELL(a, DO_FILL, p, 16 * MiB, 3);
	OK(a, DO_QUIET, 1000 * MS);
	OK(b, DO_QUIET, 300 * MS);
	OK(a, DO_MEET, 0);
	w = TELL(a, DO_OUT);
	CHECK(w.c && strstr(w.text, "may wait for another process"));
	CHECK(!TELL(a, DO_HELD).a);
	OK(b, DO_MEET, 1);
	OK(b, DO_MEET, 1);
	OK(a, DO_QUIET, 30000 * MS);
	w = TELL(a, DO_OUT); /* of the one that has its memory */
	CHECK(w.c && strstr(w.text, "which shares memory of it: its work on the card does not end"));
	CHECK(!TELL(a, DO_HELD).a && !TELL(b, DO_HELD).a);
	EQUAL(card(a), 2 * CONTEXT + 16 * MiB);
	OK(a, DO_MEET, 0);
	OK(b, DO_QUIET, 30000 * MS);
	OK(a, DO_OUT);
	EQUAL(card(a), 2 * CONTEXT);
	OK(a, DO_IN);
	back(b);
	CHECK(TELL(b, DO_FILLED, q, 16 * MiB, 3).c);
}

/* The agent has changed its mind, or one of them cannot move. */
static void a_hold_ends(void)
{
	begin_two();
	alloc(a, 4 * MiB);
	alloc(b, 4 * MiB);
	hold_both();
	EQUAL(TELL(a, DO_HELD).a, 1);
	UNTIL(says(a, "hold", SETTLED));
	EQUAL(TELL(a, DO_HELD).a, 1); /* held once */
	CHECK(says(a, "in", "\"ok\":true") && says(b, "in", "\"ok\":true"));
	CHECK(!TELL(a, DO_HELD).a && !TELL(b, DO_HELD).a);
	alloc(a, 4 * MiB);
}

static _Atomic bool gone_on;
static void *touch(void *arg)
{
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuMemsetD32Async(*(CUdeviceptr *)arg, 1, 4, NULL), 0);
	atomic_store(&gone_on, true);
	return NULL;
}

/* A step of a hold lets no call through that waits for another reason, too, such as memory of another process that is away. */
static void a_step_lets_no_call_past_another_reason(void)
{
	CUdeviceptr p;
	pthread_t t;

	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0);
	CHECK(hold_begin(false));
	CHECK(memory_calls_hold(now_ns() + 60000 * MS));
	EQUAL(pthread_create(&t, NULL, touch, &p), 0);
	UNTIL(atomic_load(&memory_calls.waiting) == 1);
	memory_calls_pass_one(200 * MS);
	CHECK(!atomic_load(&gone_on) && atomic_load(&memory_calls.waiting) == 1);
	memory_calls_release();
	UNTIL((hold_begin(true), atomic_load(&gone_on)));
	hold_end();
	EQUAL(pthread_join(t, NULL), 0);
}

static _Atomic bool launched;
static void *launch_one(void *arg)
{
	struct stub_kernel k = {1000, NULL};
	(void)arg;

	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuLaunchKernel(&k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
	atomic_store(&launched, true);
	return NULL;
}

/* Turns are taken, and it is another's: what was let through launches when its turn comes, and is not let through again for that. */
static void a_call_let_through_waits_for_its_turn(void)
{
	_Atomic int64_t *credit;
	CUdeviceptr p;
	pthread_t t;

	begin("swap on\n", "device * memory 536870912 compute 30");
	EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0);
	credit = &session.device[0].request->credit;
	atomic_store(credit, -(int64_t)3600 * 1000 * MS);
	CHECK(hold_begin(false));
	EQUAL(pthread_create(&t, NULL, launch_one, NULL), 0);
	UNTIL(atomic_load(&memory_calls.waiting) == 1);
	memory_calls_pass_one(60000 * MS);
	CHECK(!hold_begin(false)); /* it is on its way */
	CHECK(memory_calls_hold(now_ns() + 60000 * MS)); /* who moves for another reason waits for no turn */
	memory_calls_release();
	memory_calls_pass_one(60000 * MS);
	CHECK(!atomic_load(&launched));
	atomic_store(credit, 2 * TURN_NS);
	UNTIL(atomic_load(&launched));
	EQUAL(pthread_join(t, NULL), 0);
	UNTIL(hold_begin(false));
	hold_end();
}

MAIN(T(a_call_let_through_waits_for_its_turn), T(a_step_lets_no_call_past_another_reason), T(they_are_held_until_none_waits_for_another), T(one_that_is_ahead_is_caught_up_with), T(one_that_waits_for_another_is_refused), T(a_hold_ends))
