/*
 * Cards that are granted to more memory than they have. A process runs only with all its memory on the card. One that
 * finds too little free says so to the arbiter, which asks others to move out as much as is lacking (card_evictions.c).
 * Here is the process's side: to say what it lacks, to move out when asked, and to come back when it may.
 */
#include "compute_limit.h"
#include "hold.h"
#include "log.h"
#include "memory_calls.h"
#include "oversubscribe.h"
#include "swap.h"
#include "system.h"

static struct decision *decision_for(struct device *d)
{
	return &d->decision->row[atomic_load(&d->gate)->row];
}

void oversubscribe_satisfied(struct device *d)
{
	struct memory_request *m = own_memory(d);

	if (m)
		atomic_store(&m->missing, 0);
}

bool oversubscribe_ask(struct device *d, uint64_t bytes)
{
	struct memory_request *m = own_memory(d);
	unsigned movable;

	if (!m)
		return false;
	atomic_store(&m->missing, bytes);
	if (!arbiter_there(d, now_ns()))
		return true; /* it will be back */
	movable = atomic_load(&d->decision->movable);
	return movable > (atomic_load(&m->resident) ? 1 : 0);
}

bool oversubscribe_wait(struct device *d, uint64_t bytes, int *alone)
{
	if (!atomic_load(&session.oversubscribe))
		return false;
	*alone = oversubscribe_ask(d, bytes) ? 0 : *alone + 1;
	if (*alone > 50)
		return false; /* no neighbour has anything that could move: the card is really full */
	sleep_ns(10 * MS);
	return true;
}

static void serve_eviction(struct device *d, struct memory_request *m)
{
	unsigned number = atomic_load(&decision_for(d)->eviction);
	struct swap_result r;

	if (number == atomic_load(&m->moved))
		return;
	swap_out(atomic_load(&decision_for(d)->evict), &r);
	if (r.done)
		atomic_store(&m->runnable, 0);
	else
		log_error("cannot move out for a neighbour: %s", r.why);
	atomic_store(&m->moved, number);
}

/*
 * Memory that was freed for another process is not ours to take, even if we see it first. What the agent has moved out
 * waits for the agent.
 */
static void serve_return(struct device *d, struct memory_request *m)
{
	struct swap_result r;
	uint64_t missing, none = 0;

	if (!swap_is_out() || hold_is_out() || !atomic_exchange(&memory_calls.wanted, false))
		return;
	atomic_compare_exchange_strong(&m->missing, &none, 1); /* how much, the driver says */
	if (arbiter_there(d, now_ns()) && !atomic_load(&decision_for(d)->enter))
		return;
	swap_in(&r, &missing);
	if (r.done) {
		atomic_store(&m->runnable, 1);
		oversubscribe_satisfied(d);
	} else if (missing) {
		oversubscribe_ask(d, missing);
	}
}

/* Called often by the control thread of a process whose container may be oversubscribed. */
void oversubscribe_serve(void)
{
	for (int i = 0; i < session.devices; i++) {
		struct device *d = &session.device[i];
		struct memory_request *m = own_memory(d);
		if (!m)
			continue;
		serve_eviction(d, m);
		serve_return(d, m);
	}
}
