/* The memory the driver takes for itself, for contexts and code, which no call asks for by size. */
#include "driver_symbols.h"
#include "memory_budget.h"
#include "nvml_readings.h"
#include "overhead.h"
#include "session.h"
#include "swap.h"
#include "system.h"

#define CONTEXT_GUESS (512 * MiB) /* where NVML does not say: about what a context takes on a data-centre card */

#define ROW(field, d) (&session_row()->field[(d)->index])

/* What was known, unless it is less than what is there now, or more than that and what the driver may not have seen. */
static uint64_t nearest(uint64_t was, uint64_t least, uint64_t unseen)
{
	return was < least ? least : was > least + unseen ? least + unseen : was;
}

/*
 * What the driver says this process uses, less what it asked for, is overhead. Allocations that come or go while we
 * look would be taken for overhead, and so would what a pool grows by: then the reading is thrown away. Managed memory
 * may be on the card or not: while there is some, overhead is only ever raised.
 */
void overhead_refresh(struct device *d)
{
	uint64_t before = atomic_load(&d->changes), was = atomic_load(ROW(overhead, d)), used, asked, excess;

	if (swap_is_busy() || atomic_load(&d->growing) || !nvml_process_bytes(d, &used))
		return;
	asked = atomic_load(ROW(held, d)) - atomic_load(ROW(swapped, d));
	excess = nearest(was, used > asked ? used - asked : 0, atomic_load(&d->unseen));
	if (swap_is_busy() || atomic_load(&d->growing) || atomic_load(&d->changes) != before)
		return;
	if (excess < was && (atomic_load(&d->managed) || !excess))
		return;
	/* Less may only mean that an allocation is charged and not made yet: it must be seen twice with nothing between. */
	if (excess < was && (atomic_exchange(&d->lower, excess) != excess || atomic_exchange(&d->lower_at, before) != before))
		return;
	overhead_set(d, excess);
}

void overhead_set(struct device *d, uint64_t bytes)
{
	container_set_overhead(session.container, atomic_load(&session.process), d->index, bytes);
}

bool has_context(struct device *d)
{
	return atomic_load(ROW(overhead, d)) != 0;
}

bool context_begin(struct device *d, uint64_t *taken)
{
	int process = atomic_load(&session.process);

	while (!(*taken = atomic_load(&session.container->context_bytes[d->index]))) {
		if (container_first_context(session.container, process, d->index))
			return true;
		sleep_ns(MS);
	}
	return memory_charge(d, *taken);
}

bool context_end(struct device *d, uint64_t taken, bool made)
{
	int process = atomic_load(&session.process);
	uint64_t used, bytes = 0;

	if (made) {
		bool known = nvml_process_bytes(d, &used);
		uint64_t held = atomic_load(ROW(held, d)) - taken;
		bytes = known && used > held ? used - held : known ? taken : CONTEXT_GUESS;
		container_set_overhead(session.container, process, d->index, bytes);
	}
	if (taken)
		memory_refund(d, taken);
	container_context_known(session.container, process, d->index, bytes);
	return container_used(session.container, d->index) <= atomic_load(&d->limit);
}
