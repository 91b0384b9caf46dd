/* Calls that touch device memory wait here while the process is swapped out. */
#include "memory_calls.h"
#include "system.h"

struct memory_calls memory_calls;

static bool take_pass(void)
{
	int passes = atomic_load(&memory_calls.passes);

	return passes > 0 && atomic_compare_exchange_strong(&memory_calls.passes, &passes, passes - 1);
}

/*
 * The slow way in: the call has counted itself inside and found that it must wait. It looks again when it has counted itself:
 * who holds calls back for one more reason after that look waits for it, and one look is at all reasons.
 */
int memory_call_wait(void)
{
	unsigned held;
	bool let;

	atomic_fetch_add(&memory_calls.waiting, 1);
	for (;;) {
		atomic_fetch_sub(&memory_calls.inside, 1);
		atomic_store(&memory_calls.wanted, true);
		held = atomic_load(&memory_calls.held);
		if (held && !(held == HELD_TOGETHER && atomic_load(&memory_calls.passes)))
			futex_wait(&memory_calls.held, held, 20 * MS);
		atomic_fetch_add(&memory_calls.inside, 1);
		held = atomic_load(&memory_calls.held);
		let = held == HELD_TOGETHER && take_pass();
		if (!held || let) {
			atomic_fetch_sub(&memory_calls.waiting, 1);
			return let ? PASS_MEMORY | PASS_LET : PASS_MEMORY;
		}
	}
}

static void release(unsigned reason)
{
	atomic_fetch_sub(&memory_calls.held, reason);
	futex_wake(&memory_calls.held);
}

void memory_calls_hold_together(void) { atomic_fetch_add(&memory_calls.held, HELD_TOGETHER); }
void memory_calls_release_together(void) { release(HELD_TOGETHER); }

void memory_calls_pass_one(int64_t within)
{
	int64_t deadline = now_ns() + within;

	atomic_store(&memory_calls.passes, 1);
	futex_wake(&memory_calls.held);
	while (atomic_load(&memory_calls.passes) && now_ns() < deadline)
		sleep_ns(MS / 20);
	atomic_store(&memory_calls.passes, 0); /* nobody came */
}

bool memory_calls_hold(int64_t deadline)
{
	atomic_fetch_add(&memory_calls.held, 1);
	while (atomic_load(&memory_calls.inside)) {
		if (now_ns() > deadline) {
			memory_calls_release();
			return false;
		}
		sleep_ns(MS / 20);
	}
	return true;
}

void memory_calls_release(void) { release(1); }

int64_t memory_calls_idle(int64_t now)
{
	static _Atomic int64_t last;
	int64_t seen = atomic_load(&last);

	if (atomic_exchange(&memory_calls.used, false) || atomic_load(&memory_calls.inside) || atomic_load(&memory_calls.waiting) || !seen)
		atomic_store(&last, seen = now);
	return now - seen;
}

void memory_calls_fork_child(void)
{
	atomic_store(&memory_calls.waiting, 0);
	atomic_store(&memory_calls.held, 0);
	atomic_store(&memory_calls.passes, 0);
	atomic_store(&memory_calls.inside, 0);
}
