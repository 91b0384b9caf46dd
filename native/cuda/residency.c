/*
 * Cards lent to more memory than they have. A process runs only with all its memory on the card; who finds no room
 * asks a neighbour to move out as much as is lacking. A running neighbour keeps its place for a quantum, so that the
 * time spent moving stays a small part; one that waits for room itself gives way to whoever has waited longer.
 */
#include "elastic.h"

static _Atomic bool wants_in;

static struct seat *my_seat(struct device *d)
{
	struct gate *g = atomic_load(&d->gate);
	return g ? &d->card->seat[g->seat] : NULL;
}

void residency_want_in(void) { atomic_store(&wants_in, true); }

void residency_changed(struct device *d, int64_t delta)
{
	struct seat *s = my_seat(d);
	int64_t none = 0;

	if (!s)
		return;
	atomic_fetch_add(&s->resident, (uint64_t)delta);
	atomic_compare_exchange_strong(&s->resident_since, &none, now_ns());
}

void residency_fed(struct device *d)
{
	struct seat *s = my_seat(d);
	if (s)
		atomic_store(&s->starved_since, 0);
}

/* Whether a seat may be asked now, and how willingly: 0 no, 1 it has had its time, 2 it does not run anyway. */
static int willing(struct seat *s, int64_t my_since, int64_t now, int64_t quantum)
{
	int64_t since = atomic_load(&s->starved_since);

	if (!atomic_load(&s->runnable) || since)
		return !since || since > my_since ? 2 : 0;
	return now - atomic_load(&s->resident_since) >= quantum ? 1 : 0;
}

bool residency_ask(struct device *d, uint64_t bytes)
{
	struct seat *me = my_seat(d), *victim = NULL;
	int64_t now = now_ns(), quantum = (int64_t)atomic_load(&session.quantum_ms) * MS, none = 0;
	uint64_t nothing = 0;
	bool anybody = false;
	int best = 0;

	if (!me)
		return false;
	atomic_compare_exchange_strong(&me->starved_since, &none, now);
	for (int i = 0; i < MAX_SEATS; i++) {
		struct seat *s = &d->card->seat[i];
		if (s == me || !atomic_load(&s->owner) || atomic_load(&s->kept_until) < now || !atomic_load(&s->resident))
			continue;
		anybody = true;
		int w = willing(s, atomic_load(&me->starved_since), now, quantum);
		if (atomic_load(&s->evict) || w <= best)
			continue;
		victim = s;
		best = w;
	}
	if (victim)
		atomic_compare_exchange_strong(&victim->evict, &nothing, bytes);
	return anybody;
}

static void serve_eviction(struct seat *s)
{
	uint64_t asked = atomic_load(&s->evict);
	struct swap_result r;

	if (!asked)
		return;
	swap_out(asked, &r);
	if (r.done)
		atomic_store(&s->runnable, 0);
	else
		complain("cannot make room for a neighbour: %s", r.why);
	atomic_store(&s->evict, 0);
}

static void serve_return(struct device *d, struct seat *s)
{
	struct swap_result r;
	uint64_t missing;

	if (!swap_is_out() || !atomic_exchange(&wants_in, false))
		return;
	swap_in(&r, &missing);
	if (r.done) {
		atomic_store(&s->starved_since, 0);
		atomic_store(&s->runnable, 1);
		atomic_store(&s->resident_since, now_ns());
	} else if (missing) {
		residency_ask(d, missing);
	}
}

/* Called often by the control thread of a process whose container may be oversubscribed. */
void residency_serve(void)
{
	for (int i = 0; i < session.devices; i++) {
		struct device *d = &session.device[i];
		struct seat *s = my_seat(d);
		if (!s)
			continue;
		serve_eviction(s);
		serve_return(d, s);
	}
}
