/*
 * Processes that work together wait for each other on the card: one that is held back may leave another with a kernel that
 * does not end. So all of them are held back at once, and those with nothing in flight let their calls through one by one
 * until no other has anything in flight either: then all of them have done the same.
 */
#include "hold.h"
#include "memory_calls.h"
#include "settle.h"
#include "streams.h"
#include "swap.h"
#include "system.h"

#define FIRST_NS (100 * MS)  /* most work in flight waits for nobody, and ends by itself */
#define STEP_NS (5 * MS)
#define LOOK_NS (5 * MS)
#define LONGEST_NS (150000 * MS) /* others may move meanwhile, and the agent gives that two minutes */

static _Atomic bool held;
static _Atomic int64_t until;
static _Atomic bool out;

static bool calls_ended(int64_t deadline)
{
	while (atomic_load(&memory_calls.inside)) {
		if (now_ns() > deadline)
			return false;
		sleep_ns(MS / 20);
	}
	return true;
}

static bool quiet(int64_t within)
{
	int64_t deadline = now_ns() + within;
	CUresult r;

	return calls_ended(deadline) && !captures_open() && settle(SETTLE_FOR_OWN, deadline, &r);
}

bool hold_begin(bool step)
{
	bool first;

	atomic_store(&until, now_ns() + LONGEST_NS);
	if (swap_is_away() || !atomic_load(&session.swap))
		return true; /* it waits already, or is going to refuse to move */
	first = !atomic_exchange(&held, true);
	if (first)
		memory_calls_hold_together();
	if (step && (captures_open() || quiet(LOOK_NS)))
		memory_calls_pass_one(STEP_NS);
	return quiet(first ? FIRST_NS : step ? STEP_NS : LOOK_NS);
}

void hold_end(void)
{
	atomic_store(&out, false);
	if (atomic_exchange(&held, false))
		memory_calls_release_together();
}

void hold_look(void)
{
	if (atomic_load(&held) && !atomic_load(&out) && now_ns() > atomic_load(&until))
		hold_end();
}

void hold_out(void) { atomic_store(&out, true); }
bool hold_is_out(void) { return atomic_load(&out); }

void hold_fork_child(void)
{
	atomic_store(&held, false);
	atomic_store(&out, false);
}
