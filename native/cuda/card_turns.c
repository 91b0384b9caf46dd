/*
 * Which containers (tenants) are on a card, and which of their processes has the turn.
 *
 * Only the process that has the turn launches work, so what it uses is wall time, by the arbiter's clock: from the grant
 * until the process has given the turn back. Each container earns credit at the rate of its share and pays for that
 * time; one that ran over waits longer the next time. What processes write decides only what is done for themselves: a
 * process that says it wants nothing gets nothing, and one that does not give its turn back pays until it does.
 */
#include <string.h>
#include "card_turns.h"

#define NOBODY (-1)

void card_start(struct card *c, int64_t now)
{
	memset(c, 0, sizeof *c);
	c->current.tenant = c->current.row = c->evictor_tenant = c->evictor_row = NOBODY;
	c->charged = now;
}

int card_tenant_join(struct card *c, unsigned share, bool lend, int64_t now)
{
	for (int i = 0; i < MAX_TENANTS; i++) {
		struct tenant *t = &c->tenant[i];
		if (t->used)
			continue;
		memset(t, 0, sizeof *t);
		t->used = true;
		t->share = share;
		t->lend = lend;
		t->credit = TURN_NS;
		t->had = c->had;
		t->refilled = now;
		return i;
	}
	return -1;
}

void card_tenant_limits(struct card *c, int tenant, unsigned share, bool lend, uint64_t memory, int64_t quantum)
{
	c->tenant[tenant].share = share;
	c->tenant[tenant].lend = lend;
	c->tenant[tenant].memory = memory;
	c->tenant[tenant].quantum = quantum;
}

void card_tenant_leave(struct card *c, int tenant)
{
	c->tenant[tenant].used = false;
	if (c->current.tenant == tenant)
		c->current.tenant = c->current.row = NOBODY;
	if (c->evictor_tenant == tenant)
		c->evictor_tenant = c->evictor_row = NOBODY;
}

bool card_row_present(const struct row *r, int64_t now)
{
	return r->alive && now - r->alive < PRESENT_NS;
}

bool card_contended(const struct card *c, int tenant, int64_t now)
{
	for (int i = 0; i < MAX_TENANTS; i++) {
		const struct tenant *t = &c->tenant[i];
		for (int r = 0; i != tenant && t->used && r < t->rows; r++)
			if (card_row_present(&t->row[r], now))
				return true;
	}
	return false;
}

/*
 * Credit stops at a cap, so that a container cannot save up for hours. The cap is far while it waits for a turn that it
 * has credit for, or uses one: then a neighbour that does not let go of the card costs it nothing.
 */
static void refill(struct tenant *t, bool wants, int64_t now)
{
	int64_t cap = credit_cap(t->share) + (wants ? (GRACE_NS + LEASE_NS) / 10000 * t->share : 0);
	int64_t gain = (now - t->refilled) * t->share / 10000;

	t->refilled = now;
	if (t->credit < cap)
		t->credit = cap - t->credit < gain ? cap : t->credit + gain;
}

static void charge(struct card *c, struct tenant *t, int64_t ns)
{
	if (c->price > 10000)
		ns = ns * c->price / 10000;
	t->credit -= ns;
	t->had += ns * 10000 / (t->share ? t->share : 1);
	if (t->had > c->had)
		c->had = t->had;
	/* Borrowed time is not a debt: nobody else wanted the time that was lent. */
	if (t->credit < 0 && t->lend)
		t->credit = 0;
}

/* A container that comes back starts level with the others, or it would have the card alone until it has caught up. */
static void start_level(struct card *c, struct tenant *t)
{
	if (t->had < c->had - 2 * TURN_NS)
		t->had = c->had - 2 * TURN_NS;
}

static void end_turn(struct card *c, bool given_back)
{
	struct row *r = &c->tenant[c->current.tenant].row[c->current.row];

	r->turn += r->turn & 1;
	r->overstays = !given_back;
	c->current.tenant = c->current.row = NOBODY;
}

/* The process gave its turn back. What it says it did not use is believed only as far as nobody else waited for it. */
static void take_back(struct card *c, struct tenant *t, unsigned unused_us, int64_t now)
{
	int64_t unused = (int64_t)unused_us * 1000, used = now - c->current.granted;

	if (unused > 2 * LINGER_NS)
		unused = 2 * LINGER_NS;
	if (unused > used)
		unused = used;
	if (!c->current.waited_for) {
		charge(c, t, -unused);
		c->busy -= unused;
	}
	end_turn(c, true);
}

static void charge_until(struct card *c, int64_t now);

void card_row_said(struct card *c, int tenant, int row, const struct said *said, int64_t now)
{
	struct tenant *t = &c->tenant[tenant];
	struct row *r = &t->row[row];
	unsigned granted = (r->turn - 1) | 1; /* the number of its turn, also when it was asked to give it back */

	if (said->beat != r->beat) {
		r->beat = said->beat;
		r->alive = now;
	}
	if (said->released == granted) {
		r->overstays = false;
		if (c->current.tenant == tenant && c->current.row == row) {
			charge_until(c, now);
			take_back(c, t, said->unused_us, now);
		}
	}
	if (said->wants == 1 && !r->wants) {
		r->since = now;
		start_level(c, t);
	}
	r->wants = said->wants == 1;
	if (r->alive && row >= t->rows)
		t->rows = row + 1;
}

static bool asks(const struct row *r, int64_t now)
{
	return r->wants && !r->overstays && now - r->alive <= ASKING_NS;
}

/*
 * A container's priority for the turn; the greatest comes next. A container with credit for a turn that has had least of
 * its share comes first, one that may only borrow has priority 0, one that may not have the turn at all a negative one.
 */
static int64_t priority(const struct tenant *t, int64_t credit)
{
	if (t->credit >= credit)
		return INT64_MAX - t->had;
	return t->lend ? 0 : -1;
}

/* The highest priority among those that ask, without the one that has the turn. */
static int64_t best(const struct card *c, int64_t now, int *tenant, int *row, bool *other_tenant)
{
	int64_t value = -1;

	*other_tenant = false;
	for (int i = 0; i < MAX_TENANTS; i++) {
		const struct tenant *t = &c->tenant[i];
		for (int r = 0; t->used && r < t->rows; r++) {
			int64_t v = asks(&t->row[r], now) ? priority(t, TURN_NS) : -1;
			if (v < 0 || (i == c->current.tenant && r == c->current.row))
				continue;
			*other_tenant |= i != c->current.tenant;
			if (v > value || (v == value && t->row[r].since < c->tenant[*tenant].row[*row].since)) {
				value = v;
				*tenant = i;
				*row = r;
			}
		}
	}
	return value;
}

/* Everybody earns, the one that has the turn pays, and so does one whose turn was taken away and that still runs. */
static void charge_until(struct card *c, int64_t now)
{
	int64_t ns = now - c->charged;

	if (ns <= 0)
		return;
	for (int i = 0; i < MAX_TENANTS; i++) {
		struct tenant *t = &c->tenant[i];
		bool waits = false, pays = i == c->current.tenant;
		for (int r = 0; t->used && r < t->rows; r++) {
			waits |= asks(&t->row[r], now);
			pays |= t->row[r].overstays && now - t->row[r].alive < LEASE_NS;
		}
		if (!t->used)
			continue;
		refill(t, i == c->current.tenant || (waits && t->credit >= TURN_NS), now);
		if (pays)
			charge(c, t, ns);
	}
	if (c->current.tenant != NOBODY)
		c->busy += ns;
	c->charged = now;
}

static bool should_yield(const struct card *c, int64_t other, int64_t now)
{
	const struct tenant *t = &c->tenant[c->current.tenant];
	bool long_enough = now - c->current.granted >= 2 * TURN_NS;

	if (t->credit <= 0)
		return !t->lend || other > 0 || (other == 0 && long_enough);
	return long_enough && other >= priority(t, 1);
}

static void look_at_current(struct card *c, int64_t other, int64_t now)
{
	struct row *r = &c->tenant[c->current.tenant].row[c->current.row];

	if (now - c->current.granted > ACCEPT_NS && r->beat == c->current.beat) {
		end_turn(c, true); /* it never took it */
	} else if (now - (r->alive > c->current.granted ? r->alive : c->current.granted) > LEASE_NS ||
		   (c->current.yield_since && now - c->current.yield_since > GRACE_NS)) {
		end_turn(c, false);
	} else if (!c->current.yield_since && should_yield(c, other, now)) {
		c->current.yield_since = now;
		r->turn++;
	}
}

void card_decide(struct card *c, int64_t now)
{
	int tenant = NOBODY, row = NOBODY;
	bool other_tenant;
	int64_t other;

	charge_until(c, now);
	other = best(c, now, &tenant, &row, &other_tenant);
	if (c->current.tenant != NOBODY) {
		c->current.waited_for |= other_tenant;
		look_at_current(c, other, now);
	}
	if (c->current.tenant != NOBODY || other < 0)
		return;
	c->tenant[tenant].row[row].turn++;
	c->current = (struct current){.tenant = tenant, .row = row, .granted = now, .beat = c->tenant[tenant].row[row].beat};
}

bool card_active(const struct card *c, int64_t now)
{
	if (c->current.tenant != NOBODY)
		return true;
	for (int i = 0; i < MAX_TENANTS; i++)
		for (int r = 0; c->tenant[i].used && r < c->tenant[i].rows; r++)
			if (asks(&c->tenant[i].row[r], now))
				return true;
	return false;
}
