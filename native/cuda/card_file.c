/*
 * The file of a card: which containers (tenants) are on it, their processes' slots, and which process has the turn.
 *
 * Only the process that has the turn launches work, so what it uses is wall time, which needs no trust in a
 * process's clock of the GPU. Each container earns credit at the rate of its share and pays for the time its processes have the
 * turn; one that ran over waits longer the next time. Every field is written with single atomic steps: a process may
 * die anywhere.
 */
#include "card_file.h"
#include "system.h"

#define SLOT_OF(turn) ((int)((turn) & 0xffff) - 1)

static int64_t credit_cap(unsigned share)
{
	int64_t cap = 100 * MS / 10000 * share;
	return cap > 2 * TURN_NS ? cap : 2 * TURN_NS;
}

int card_tenant(struct card *c, const char *container, unsigned share, bool lend, int64_t now)
{
	uint64_t id = hash_text(container);
	int found = -1;

	for (int i = 0; i < MAX_TENANTS && found < 0; i++)
		if (atomic_load(&c->tenant[i].id) == id)
			found = i;
	for (int i = 0; i < MAX_TENANTS && found < 0; i++) {
		struct tenant *t = &c->tenant[i];
		uint64_t was = atomic_load(&t->id);
		if ((was && now - atomic_load(&t->seen) < SLOT_NS) || !atomic_compare_exchange_strong(&t->id, &was, id))
			continue;
		atomic_store(&t->credit, TURN_NS);
		atomic_store(&t->had, atomic_load(&c->had));
		atomic_store(&t->refilled, now);
		found = i;
	}
	if (found < 0)
		return -1;
	atomic_store(&c->tenant[found].share, share);
	atomic_store(&c->tenant[found].lend, lend);
	atomic_store(&c->tenant[found].seen, now);
	return found;
}

int card_slot_take(struct card *c, unsigned tenant, uint64_t owner, int64_t now)
{
	for (int i = 0; i < MAX_SLOTS; i++) {
		struct slot *s = &c->slot[i];
		uint64_t was = atomic_load(&s->owner);
		if ((was && atomic_load(&s->expires) > now) || !atomic_compare_exchange_strong(&s->owner, &was, owner))
			continue;
		atomic_store(&s->wants, 0);
		atomic_store(&s->resident, 0);
		atomic_store(&s->evict, 0);
		atomic_store(&s->starved_since, 0);
		atomic_store(&s->runnable, 1);
		atomic_store(&s->tenant, tenant);
		atomic_store(&s->expires, now + SLOT_NS);
		return i;
	}
	return -1;
}

void card_slot_renew(struct card *c, int slot, int64_t now)
{
	atomic_store(&c->slot[slot].expires, now + SLOT_NS);
	atomic_store(&c->tenant[atomic_load(&c->slot[slot].tenant)].seen, now);
}

void card_slot_leave(struct card *c, int slot)
{
	atomic_store(&c->slot[slot].wants, 0);
	atomic_store(&c->slot[slot].owner, 0);
}

void card_renew_turn(struct card *c, int64_t now)
{
	atomic_store(&c->lease, now + LEASE_NS);
}

int64_t card_credit(struct card *c, unsigned tenant, int64_t now)
{
	struct tenant *t = &c->tenant[tenant];
	int64_t since = atomic_load(&t->refilled), credit;
	unsigned share = atomic_load(&t->share);
	int64_t cap = credit_cap(share);

	if (now > since && atomic_compare_exchange_strong(&t->refilled, &since, now))
		atomic_fetch_add(&t->credit, (now - since) * share / 10000);
	credit = atomic_load(&t->credit);
	while (credit > cap && !atomic_compare_exchange_weak(&t->credit, &credit, cap))
		;
	return credit > cap ? cap : credit;
}

void card_charge(struct card *c, unsigned tenant, int64_t ns)
{
	struct tenant *t = &c->tenant[tenant];
	int64_t credit = atomic_fetch_sub(&t->credit, ns) - ns, level = atomic_load(&c->had);
	unsigned share = atomic_load(&t->share);
	int64_t had = ns * 10000 / (share ? share : 1);

	had += atomic_fetch_add(&t->had, had);
	while (level < had && !atomic_compare_exchange_weak(&c->had, &level, had))
		;

	/* Borrowed time is not a debt: nobody else wanted the time that was lent. */
	while (credit < 0 && atomic_load(&t->lend) && !atomic_compare_exchange_weak(&t->credit, &credit, 0))
		;
}

/*
 * A container's priority for the turn; the greatest comes next. A container with credit that has had least of its share
 * comes first, one that may only borrow has priority 0, one that may not have the turn at all a negative one.
 */
static int64_t turn_priority(struct card *c, unsigned tenant, int64_t now)
{
	if (card_credit(c, tenant, now) > 0)
		return INT64_MAX - atomic_load(&c->tenant[tenant].had);
	return atomic_load(&c->tenant[tenant].lend) ? 0 : -1;
}

static bool asking(struct card *c, int slot, int64_t now)
{
	return atomic_load(&c->slot[slot].wants) && now - atomic_load(&c->slot[slot].asked) <= ASKING_NS;
}

/* A container that comes back starts level with the others, or it would have the card alone until it has caught up. */
static void start_level(struct card *c, unsigned tenant)
{
	struct tenant *t = &c->tenant[tenant];
	int64_t level = atomic_load(&c->had) - 2 * TURN_NS, had = atomic_load(&t->had);

	while (had < level && !atomic_compare_exchange_weak(&t->had, &had, level))
		;
}

/* The slot with the highest priority among the others; -1 if none asks. */
static int best_other(struct card *c, int slot, int64_t now, int64_t *value)
{
	int best = -1;

	*value = -1;
	for (int i = 0; i < MAX_SLOTS; i++) {
		int64_t v = i == slot || !asking(c, i, now) ? -1 : turn_priority(c, atomic_load(&c->slot[i].tenant), now);
		if (v > *value || (v >= 0 && v == *value && atomic_load(&c->slot[i].since) < atomic_load(&c->slot[best].since))) {
			best = i;
			*value = v;
		}
	}
	return best;
}

bool card_has_turn(struct card *c, int slot)
{
	return SLOT_OF(atomic_load(&c->turn)) == slot;
}

static bool turn_to(struct card *c, uint64_t from, int slot, int64_t now)
{
	uint64_t next = ((from >> 16) + 1) << 16 | (uint64_t)(slot + 1);

	if (!atomic_compare_exchange_strong(&c->turn, &from, next))
		return false;
	card_renew_turn(c, now);
	return true;
}

bool card_take_turn(struct card *c, int slot, int64_t now, int64_t *wait)
{
	struct slot *s = &c->slot[slot];
	unsigned tenant = atomic_load(&s->tenant), share = atomic_load(&c->tenant[tenant].share);
	int64_t credit = card_credit(c, tenant, now), other, mine;
	uint64_t turn = atomic_load(&c->turn);

	*wait = 2 * MS;
	if (SLOT_OF(turn) == slot) {
		atomic_store(&s->wants, 0);
		card_renew_turn(c, now);
		return true;
	}
	best_other(c, slot, now, &other);
	/* A turn begins with some credit: many short ones would cost more in handing over than they are worth. */
	if (credit < TURN_NS && !(atomic_load(&c->tenant[tenant].lend) && other <= 0)) {
		atomic_store(&s->wants, 0);
		*wait = (TURN_NS - credit) * 10000 / (share ? share : 1);
		return false;
	}
	atomic_store(&s->asked, now);
	if (!atomic_exchange(&s->wants, 1)) {
		atomic_store(&s->since, now);
		start_level(c, tenant);
	}
	if (SLOT_OF(turn) >= 0 && atomic_load(&c->lease) > now)
		return false;
	mine = turn_priority(c, tenant, now);
	if (other > mine && SLOT_OF(turn) < 0) {
		*wait = MS / 10; /* it is free, and another has priority: it asks again at once */
		return false;
	}
	if (!turn_to(c, turn, slot, now))
		return false;
	atomic_store(&s->wants, 0);
	return true;
}

bool card_should_yield(struct card *c, int slot, int64_t now, int64_t held)
{
	unsigned tenant = atomic_load(&c->slot[slot].tenant);
	int64_t other, credit = card_credit(c, tenant, now);

	if (!card_has_turn(c, slot))
		return true;
	best_other(c, slot, now, &other);
	if (credit <= 0)
		return !atomic_load(&c->tenant[tenant].lend) || other > 0 || (other == 0 && held >= 2 * TURN_NS);
	return held >= 2 * TURN_NS && other >= turn_priority(c, tenant, now);
}

int card_pass_turn(struct card *c, int slot, int64_t now)
{
	uint64_t turn = atomic_load(&c->turn);
	int64_t value;
	int next;

	if (SLOT_OF(turn) != slot)
		return -1;
	next = best_other(c, slot, now, &value);
	if (!turn_to(c, turn, next, now))
		return -1;
	atomic_store(&c->lease, now + ACCEPT_NS);
	return next;
}

bool card_contended(struct card *c, unsigned tenant, int64_t now)
{
	for (unsigned i = 0; i < MAX_TENANTS; i++)
		if (i != tenant && atomic_load(&c->tenant[i].id) && now - atomic_load(&c->tenant[i].seen) < TENANT_NS)
			return true;
	return false;
}
