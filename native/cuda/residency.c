/*
 * Cards lent to more memory than they have. A process runs only with all its memory on the card. Who finds no room waits
 * for the floor, which one process at a time has for a quantum; the one that has it asks others to move out as much as
 * is lacking. So somebody always gets on, and the time spent moving is bounded by the length of the quantum.
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
	if (s)
		atomic_fetch_add(&s->resident, (uint64_t)delta);
}

void residency_fed(struct device *d)
{
	struct seat *s = my_seat(d);

	if (!s || !atomic_exchange(&s->starved_since, 0))
		return;
	if (atomic_load(&d->card->floor) == (unsigned)(s - d->card->seat) + 1)
		atomic_store(&d->card->floor_since, now_ns()); /* the quantum is for work, not for waiting */
}

static bool present(struct seat *s, int64_t now)
{
	return atomic_load(&s->owner) && atomic_load(&s->kept_until) > now + SEAT_NS - PRESENT_NS;
}

/* Whether somebody else has waited for room longer than this seat. */
static bool behind_another(struct card *c, int me, int64_t now)
{
	int64_t mine = atomic_load(&c->seat[me].starved_since);

	for (int i = 0; i < MAX_SEATS; i++) {
		int64_t since = atomic_load(&c->seat[i].starved_since);
		if (i != me && since && (since < mine || (since == mine && i < me)) && present(&c->seat[i], now))
			return true;
	}
	return false;
}

/* The floor goes to who has waited longest, when its holder has run for a quantum or is gone. */
static bool take_floor(struct card *c, int me, int64_t now, int64_t quantum)
{
	unsigned holder = atomic_load(&c->floor);
	struct seat *h = holder ? &c->seat[holder - 1] : NULL;

	if (holder == (unsigned)me + 1)
		return true;
	if (h && present(h, now) && (atomic_load(&h->starved_since) || now - atomic_load(&c->floor_since) < quantum))
		return false;
	if (behind_another(c, me, now) || !atomic_compare_exchange_strong(&c->floor, &holder, (unsigned)me + 1))
		return false;
	atomic_store(&c->floor_since, now);
	return true;
}

bool residency_ask(struct device *d, uint64_t bytes)
{
	struct card *c = d->card;
	struct seat *me = my_seat(d), *victim = NULL;
	int64_t now = now_ns(), none = 0;
	uint64_t nothing = 0;
	bool anybody = false;

	if (!me)
		return false;
	atomic_compare_exchange_strong(&me->starved_since, &none, now);
	for (int i = 0; i < MAX_SEATS; i++) {
		struct seat *s = &c->seat[i];
		if (s == me || !present(s, now) || !atomic_load(&s->resident))
			continue;
		anybody = true;
		/* one that does not run anyway, else the one that has most */
		if (!victim || atomic_load(&s->runnable) < atomic_load(&victim->runnable) ||
		    (atomic_load(&s->runnable) == atomic_load(&victim->runnable) && atomic_load(&s->resident) > atomic_load(&victim->resident)))
			victim = s;
	}
	if (victim && take_floor(c, (int)(me - c->seat), now, (int64_t)atomic_load(&session.quantum_ms) * MS))
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

/* Room that was made for somebody else is not ours to take, even if we see it first. */
static void serve_return(struct device *d, struct seat *s)
{
	int me = (int)(s - d->card->seat);
	int64_t none = 0;
	struct swap_result r;
	uint64_t missing;

	if (!swap_is_out() || !atomic_exchange(&wants_in, false))
		return;
	atomic_compare_exchange_strong(&s->starved_since, &none, now_ns());
	if (atomic_load(&d->card->floor) != (unsigned)me + 1 && behind_another(d->card, me, now_ns()))
		return;
	swap_in(&r, &missing);
	if (r.done) {
		atomic_store(&s->runnable, 1);
		residency_fed(d);
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
