/*
 * Cards that are granted to more memory than they have. A process runs only with all its memory on the card. One that
 * finds too little free waits until it is the evictor, which one process at a time is for a quantum; the evictor asks
 * others to move out as much as is lacking. So some process always gets on, and the time spent moving is bounded by the
 * length of the quantum.
 */
#include "compute_limit.h"
#include "log.h"
#include "memory_calls.h"
#include "oversubscribe.h"
#include "swap.h"
#include "system.h"

void oversubscribe_satisfied(struct device *d)
{
	struct slot *s = own_slot(d);

	if (!s || !atomic_exchange(&s->starved_since, 0))
		return;
	if (atomic_load(&d->card->evictor) == (unsigned)(s - d->card->slot) + 1)
		atomic_store(&d->card->evictor_since, now_ns()); /* the quantum is for work, not for waiting */
}

static bool present(struct slot *s, int64_t now)
{
	return atomic_load(&s->owner) && atomic_load(&s->expires) > now + SLOT_NS - PRESENT_NS;
}

/* Whether another process has waited for memory longer than this one. */
static bool behind_another(struct card *c, int me, int64_t now)
{
	int64_t mine = atomic_load(&c->slot[me].starved_since);

	for (int i = 0; i < MAX_SLOTS; i++) {
		int64_t since = atomic_load(&c->slot[i].starved_since);
		if (i != me && since && (since < mine || (since == mine && i < me)) && present(&c->slot[i], now))
			return true;
	}
	return false;
}

/* The process that has waited longest is next, when the evictor has run for a quantum or is gone. */
static bool become_evictor(struct card *c, int me, int64_t now, int64_t quantum)
{
	unsigned evictor = atomic_load(&c->evictor);
	struct slot *h = evictor ? &c->slot[evictor - 1] : NULL;

	if (evictor == (unsigned)me + 1)
		return true;
	if (h && present(h, now) && (atomic_load(&h->starved_since) || now - atomic_load(&c->evictor_since) < quantum))
		return false;
	if (behind_another(c, me, now) || !atomic_compare_exchange_strong(&c->evictor, &evictor, (unsigned)me + 1))
		return false;
	atomic_store(&c->evictor_since, now);
	return true;
}

bool oversubscribe_ask(struct device *d, uint64_t bytes)
{
	struct card *c = d->card;
	struct slot *me = own_slot(d), *victim = NULL;
	int64_t now = now_ns(), none = 0;
	uint64_t nothing = 0;
	bool any_neighbour = false;

	if (!me)
		return false;
	atomic_compare_exchange_strong(&me->starved_since, &none, now);
	for (int i = 0; i < MAX_SLOTS; i++) {
		struct slot *s = &c->slot[i];
		if (s == me || !present(s, now) || !atomic_load(&s->resident))
			continue;
		any_neighbour = true;
		/* one that does not run anyway, else the one that has most */
		if (!victim || atomic_load(&s->runnable) < atomic_load(&victim->runnable) ||
		    (atomic_load(&s->runnable) == atomic_load(&victim->runnable) && atomic_load(&s->resident) > atomic_load(&victim->resident)))
			victim = s;
	}
	if (victim && become_evictor(c, (int)(me - c->slot), now, (int64_t)atomic_load(&session.quantum_ms) * MS))
		atomic_compare_exchange_strong(&victim->evict, &nothing, bytes);
	return any_neighbour;
}

static void serve_eviction(struct slot *s)
{
	uint64_t asked = atomic_load(&s->evict);
	struct swap_result r;

	if (!asked)
		return;
	swap_out(asked, &r);
	if (r.done)
		atomic_store(&s->runnable, 0);
	else
		log_error("cannot move out for a neighbour: %s", r.why);
	atomic_store(&s->evict, 0);
}

/* Memory that was freed for another process is not ours to take, even if we see it first. */
static void serve_return(struct device *d, struct slot *s)
{
	int me = (int)(s - d->card->slot);
	int64_t none = 0;
	struct swap_result r;
	uint64_t missing;

	if (!swap_is_out() || !atomic_exchange(&memory_calls.wanted, false))
		return;
	atomic_compare_exchange_strong(&s->starved_since, &none, now_ns());
	if (atomic_load(&d->card->evictor) != (unsigned)me + 1 && behind_another(d->card, me, now_ns()))
		return;
	swap_in(&r, &missing);
	if (r.done) {
		atomic_store(&s->runnable, 1);
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
		struct slot *s = own_slot(d);
		if (!s)
			continue;
		serve_eviction(s);
		serve_return(d, s);
	}
}
