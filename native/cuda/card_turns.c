/*
 * Which containers (tenants) are on a card, and which of their processes has the turn.
 *
 * Only the process that has the turn launches work, so what it uses is wall time, by the arbiter's clock: from the grant
 * until the process has given the turn back. Each container earns credit at the rate of its share and pays for that
 * time; one that ran over waits longer the next time. What processes write decides only what is done for themselves: a
 * process that says it wants nothing gets nothing, and one that does not give its turn back pays until it does.
 *
 * A quick container, one that works in short steps, is offered the turn sooner. One that is below its share does not wait
 * for work of others that is in flight: it begins beside it. The driver then runs one of them after the other, for a slice
 * of time each, and so the bill is written.
 */
#include <string.h>
#include "card_turns.h"

#define NOBODY (-1)

void card_start(struct card *c, int64_t now)
{
	memset(c, 0, sizeof *c);
	c->current.tenant = c->current.row = c->evictor_tenant = c->evictor_row = c->last = NOBODY;
	c->charged = now;
	c->tuning = (struct tuning){.slice = SLICE_NS, .start = START_NS, .look = MS / 10, .backlog = MS / 10, .card_slice = CARD_SLICE_NS, .beside = true, .expect = true};
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
		if (i >= c->tenants)
			c->tenants = i + 1;
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

void card_tenant_latency(struct card *c, int tenant, enum latency latency)
{
	c->tenant[tenant].latency = latency;
}

void card_tenant_leave(struct card *c, int tenant)
{
	c->tenant[tenant].used = false;
	while (c->tenants && !c->tenant[c->tenants - 1].used)
		c->tenants--;
	if (c->current.tenant == tenant)
		c->current.tenant = c->current.row = NOBODY;
	if (c->evictor_tenant == tenant)
		c->evictor_tenant = c->evictor_row = NOBODY;
	if (c->last == tenant)
		c->last = NOBODY;
}

bool card_row_present(const struct row *r, int64_t now)
{
	return r->alive && now - r->alive < PRESENT_NS;
}

bool card_contended(const struct card *c, int tenant, int64_t now)
{
	for (int i = 0; i < c->tenants; i++) {
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

static bool is_behind(const struct card *c, const struct tenant *t) { return t->had <= c->had - BEHIND_NS; }

/* A container that comes back starts level with the others, or it would have the card alone until it has caught up. */
static void start_level(struct card *c, struct tenant *t)
{
	int64_t most = LEVEL_NS * 10000 / (t->share ? t->share : 1);

	t->behind = is_behind(c, t);
	if (t->had < c->had - most)
		t->had = c->had - most;
}

/*
 * A container is quick if its class says so, or if it works in short steps: by its own word, or because it gives its turns
 * back early. Its word is believed, for it gains nothing in time by it: its turns are shorter, and it pays for what the
 * changes between it and those that are not quick take.
 */
static bool is_quick(const struct tenant *t)
{
	return t->latency == LATENCY_LOW || (t->latency == LATENCY_AUTO && (t->short_rows > 0 || t->rests >= RESTS));
}

static bool is_current(const struct card *c, int tenant, int row)
{
	return c->current.tenant == tenant && c->current.row == row;
}

/* The turn is over, or asked back: then work may still be in flight. */
static void leave_turn(struct card *c, bool given_back, int64_t now)
{
	struct row *r = &c->tenant[c->current.tenant].row[c->current.row];

	r->turn += r->turn & 1;
	r->closing_since = given_back ? 0 : now;
	c->current.tenant = c->current.row = NOBODY;
}

/* One container less has work in flight: the others have the card from now on. */
static void has_card_alone(struct card *c, const struct tenant *but, int64_t now)
{
	for (int i = 0; i < c->tenants; i++)
		for (int r = 0; &c->tenant[i] != but && c->tenant[i].used && r < c->tenant[i].rows; r++)
			if (is_current(c, i, r) || c->tenant[i].row[r].closing_since)
				c->tenant[i].row[r].begun = now;
}

/*
 * The process gave its turn back. What it says it did not use is believed only as far as nobody else waited for it.
 */
static void take_back(struct card *c, struct tenant *t, struct row *r, unsigned unused_us, int64_t now)
{
	int64_t unused = (int64_t)unused_us * 1000, used = now - r->granted;

	if (r->closing_since) {
		int64_t took = now - r->closing_since;
		t->overrun = took > t->overrun * 7 / 8 ? took : t->overrun * 7 / 8;
		t->rests -= t->rests > 0;
	} else if (is_quick(t)) {
		c->rested = now;
	}
	if (!r->closing_since)
		t->rests = used > REST_NS + LINGER_NS ? 0 : t->rests < RESTS_MOST ? t->rests + 1 : RESTS_MOST;
	r->given_back = now;
	has_card_alone(c, t, now);

	if (unused > 2 * LINGER_NS)
		unused = 2 * LINGER_NS;
	if (unused > used)
		unused = used;
	rhythm_rests(&t->rhythm, r->closing_since ? 0 : now - unused);
	if (!r->waited_for) {
		charge(c, t, -unused);
		c->busy -= unused;
	}
	r->closing_since = 0;
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
		bool current = is_current(c, tenant, row);
		r->overstays = false;
		if (current || r->closing_since) {
			charge_until(c, now);
			take_back(c, t, r, said->unused_us, now);
		}
		if (current)
			leave_turn(c, true, now);
	}
	if (said->wants == SAYS_WANTS && !r->wants) {
		r->since = now;
		start_level(c, t);
		rhythm_returns(&t->rhythm, now);
	}
	r->wants = said->wants == SAYS_WANTS;
	r->ending = said->wants == SAYS_ENDING;
	if (r->alive && row >= t->rows)
		t->rows = row + 1;
}

void card_row_short(struct card *c, int tenant, int row, bool short_steps, int64_t now)
{
	struct tenant *t = &c->tenant[tenant];

	short_steps &= card_row_present(&t->row[row], now);
	t->short_rows += short_steps - t->row[row].short_steps;
	t->row[row].short_steps = short_steps;
}

static bool asks(const struct row *r, int64_t now)
{
	return r->wants && !r->overstays && !r->closing_since && now - r->alive <= ASKING_NS;
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

/* What a turn begins with. The best time for the others is when a quick one has just come to rest. */
static int64_t start_credit(const struct card *c, const struct tenant *t)
{
	if (c->rested && c->charged - c->rested < AFTER_QUICK_NS && t->overrun < AFTER_QUICK_OVERRUN_NS)
		return AFTER_QUICK_CREDIT;
	return is_quick(t) ? c->tuning.start : TURN_NS;
}

/* Who comes next of those that ask: not the one that has the turn. */
struct next {
	int tenant, row;
	int64_t priority;    /* negative: nobody */
	bool other_tenant;   /* one that waits is of another container than the one that has the turn */
};

static struct next best(const struct card *c, int64_t now)
{
	struct next n = {NOBODY, NOBODY, -1, false};

	for (int i = 0; i < c->tenants; i++) {
		const struct tenant *t = &c->tenant[i];
		for (int r = 0; t->used && r < t->rows; r++) {
			int64_t v = asks(&t->row[r], now) ? priority(t, start_credit(c, t)) : -1;
			if (v < 0 || is_current(c, i, r))
				continue;
			n.other_tenant |= i != c->current.tenant;
			if (v > n.priority || (v == n.priority && t->row[r].since < c->tenant[n.tenant].row[n.row].since)) {
				n.priority = v;
				n.tenant = i;
				n.row = r;
			}
		}
	}
	return n;
}

/* It is quick, has credit, is below its share, and rests between its steps: one that never does comes in its turn. */
static bool comes_at_once(const struct card *c, const struct next *n)
{
	const struct tenant *t = &c->tenant[n->tenant];

	return n->priority > 0 && is_quick(t) && t->behind && (t->rests || t->latency == LATENCY_LOW);
}

/* A process that got the turn has not been seen since. */
static bool never_took(const struct row *r, int64_t now)
{
	return r->beat == r->granted_beat && now - r->granted > ACCEPT_NS;
}

/* One that was asked to give its turn back has time for what is in flight; a dead one has nothing in flight. */
static bool still_closing(struct row *r, int64_t now)
{
	if (never_took(r, now))
		r->closing_since = 0;
	if (r->closing_since && (now - r->closing_since > GRACE_NS || now - r->alive > LEASE_NS)) {
		r->closing_since = 0;
		r->overstays = true;
	}
	return r->closing_since != 0;
}

static bool shares_bill(const struct row *r, int64_t now) { return now - r->closing_since < BESIDE_NS; }

static bool has_work(const struct card *c, int tenant, int row, int64_t now)
{
	const struct row *r = &c->tenant[tenant].row[row];

	return is_current(c, tenant, row) || (r->closing_since && shares_bill(r, now));
}

/*
 * Whose work the card runs: of several that have some in flight the one that came first for a slice, then the next. That
 * is how the driver does it, so a short step beside a long product pays for the step.
 */
static struct current payer(struct card *c, int64_t now)
{
	struct current who = {NOBODY, NOBODY};
	int in_flight = 0, at;
	int64_t after = INT64_MIN;

	for (int i = 0; i < c->tenants; i++)
		for (int r = 0; c->tenant[i].used && r < c->tenant[i].rows; r++)
			in_flight += has_work(c, i, r, now);
	if (in_flight != c->in_flight)
		c->shared_since = c->charged;
	c->in_flight = in_flight;
	if (!in_flight)
		return who;
	at = (int)((now - c->shared_since) / c->tuning.card_slice % in_flight);
	for (int n = 0; n <= at; n++) {
		int64_t first = INT64_MAX;
		for (int i = 0; i < c->tenants; i++)
			for (int r = 0; c->tenant[i].used && r < c->tenant[i].rows; r++) {
				int64_t granted = c->tenant[i].row[r].granted;
				if (!has_work(c, i, r, now) || granted <= after || granted >= first)
					continue;
				first = granted;
				who = (struct current){i, r};
			}
		after = first;
	}
	return who;
}

/*
 * Everybody earns. Who has the turn pays, and who was asked to give it back until it does; while several have work in
 * flight one after the other. One that does not for long pays in full, until it does.
 */
static void charge_until(struct card *c, int64_t now)
{
	int64_t ns = now - c->charged;
	struct current pays;
	bool busy;

	if (ns <= 0)
		return;
	for (int i = 0; i < c->tenants; i++)
		for (int r = 0; c->tenant[i].used && r < c->tenant[i].rows; r++)
			still_closing(&c->tenant[i].row[r], now);
	pays = payer(c, now);
	busy = pays.tenant != NOBODY;
	for (int i = 0; i < c->tenants; i++) {
		struct tenant *t = &c->tenant[i];
		bool waits = false, overstays = false, runs = false;
		for (int r = 0; t->used && r < t->rows; r++) {
			waits |= asks(&t->row[r], now);
			runs |= has_work(c, i, r, now);
			overstays |= t->row[r].closing_since && !shares_bill(&t->row[r], now);
			overstays |= t->row[r].overstays && now - t->row[r].alive < LEASE_NS;
			busy |= t->row[r].closing_since != 0;
		}
		if (!t->used)
			continue;
		refill(t, runs || overstays || (waits && t->credit >= start_credit(c, t)), now);
		if (overstays || i == pays.tenant)
			charge(c, t, ns);
		t->borrows_since = t->credit > 0 ? 0 : t->borrows_since ? t->borrows_since : now;
	}
	if (busy)
		c->busy += ns;
	c->charged = now;
}

/* A turn that one of the two needs short is offered round after a slice, from when the card was its own. */
static bool should_yield(const struct card *c, const struct next *n, int64_t now)
{
	const struct tenant *t = &c->tenant[c->current.tenant];
	bool quick = is_quick(t) || (n->priority >= 0 && is_quick(&c->tenant[n->tenant])), long_enough; /* who has long turns waits long */

	long_enough = now - t->row[c->current.row].begun >= (quick ? c->tuning.slice : 2 * TURN_NS);
	if (n->priority >= 0 && n->tenant != c->current.tenant && comes_at_once(c, n))
		return long_enough || (!is_quick(t) && now - t->row[c->current.row].begun >= AT_ONCE_NS);
	if (t->credit <= 0)
		return !t->lend || n->priority > 0 || (n->priority == 0 && long_enough);
	return long_enough && n->priority >= priority(t, 1);
}

static void look_at_current(struct card *c, const struct next *n, int64_t now)
{
	struct row *r = &c->tenant[c->current.tenant].row[c->current.row];

	r->waited_for |= n->other_tenant;
	if (never_took(r, now)) {
		leave_turn(c, true, now);
	} else if (now - (r->alive > r->granted ? r->alive : r->granted) > LEASE_NS) {
		r->overstays = true;
		leave_turn(c, true, now);
	} else if (should_yield(c, n, now)) {
		struct tenant *t = &c->tenant[c->current.tenant];
		t->interrupted = !is_quick(t) && n->priority >= 0 && is_quick(&c->tenant[n->tenant]);
		leave_turn(c, false, now);
	}
}

/* Another container waits while a turn that was asked back goes on. */
static void note_waiting(struct card *c, const struct next *n)
{
	for (int i = 0; i < c->tenants; i++)
		for (int r = 0; i != n->tenant && c->tenant[i].used && r < c->tenant[i].rows; r++)
			c->tenant[i].row[r].waited_for |= c->tenant[i].row[r].closing_since != 0;
}

/* Whether the next may begin although others have work in flight. */
static bool may_begin(const struct card *c, const struct next *n)
{
	const struct tenant *t = &c->tenant[n->tenant];
	bool beside = c->tuning.beside && is_quick(t) && n->priority > 0 && (t->latency == LATENCY_LOW || comes_at_once(c, n)), ok = true;

	for (int i = 0; i < c->tenants; i++)
		for (int r = 0; c->tenant[i].used && r < c->tenant[i].rows; r++) {
			const struct row *other = &c->tenant[i].row[r];
			if (other->closing_since && !beside && !(c->tuning.beside && is_quick(t) && other->ending))
				ok = false;
		}
	return ok;
}

/* Short turns are for the quick one's sake: what the change back takes is its to pay, not that of the one it came between. */
static void pay_for_change(struct card *c, struct tenant *t)
{
	struct tenant *before = c->last == NOBODY ? t : &c->tenant[c->last];

	if (before != t && t->interrupted && is_quick(before)) {
		charge(c, before, SWITCH_NS);
		charge(c, t, -SWITCH_NS);
	}
	t->interrupted = false;
}

void card_decide(struct card *c, int64_t now)
{
	struct next n;
	struct tenant *t;
	struct row *r;

	charge_until(c, now);
	n = best(c, now);
	c->waited = n.priority >= 0;
	c->waited_quick = c->waited && is_quick(&c->tenant[n.tenant]);
	if (c->current.tenant != NOBODY)
		look_at_current(c, &n, now);
	if (n.priority >= 0)
		note_waiting(c, &n);
	if (c->current.tenant != NOBODY || n.priority < 0 || !may_begin(c, &n))
		return;
	t = &c->tenant[n.tenant];
	r = &t->row[n.row];
	r->turn++;
	if (!r->given_back || r->given_back < c->granted || now - r->given_back > LINGER_NS)
		r->begun = now;
	r->granted = c->granted = now;
	r->waited_for = false;
	t->behind = false;
	r->granted_beat = r->beat;
	pay_for_change(c, t);
	c->last = n.tenant;
	c->current = (struct current){n.tenant, n.row};
}

int64_t card_handover(const struct card *c)
{
	int64_t since = 0;

	for (int i = 0; c->waited && i < c->tenants; i++)
		for (int r = 0; c->tenant[i].used && r < c->tenant[i].rows; r++)
			if (c->tenant[i].row[r].closing_since > since)
				since = c->tenant[i].row[r].closing_since;
	return since;
}

bool card_quick(const struct card *c, int tenant, int64_t now)
{
	for (int i = 0; i < c->tenants; i++) {
		const struct tenant *t = &c->tenant[i];
		for (int r = 0; i != tenant && t->used && is_quick(t) && r < t->rows; r++) {
			const struct row *p = &t->row[r];
			bool lately = p->wants || (p->granted && now - p->granted < LATELY_NS);
			if (card_row_present(p, now) && (t->latency == LATENCY_LOW || lately))
				return true;
		}
	}
	return false;
}

bool card_hurried(const struct card *c, int tenant)
{
	return c->waited_quick || (c->waited && tenant >= 0 && is_quick(&c->tenant[tenant]));
}

/*
 * Lent time is the lender's as soon as it comes back. A launch that is made just before that is in its way for as long as it
 * takes, so who runs on lent time makes none then, if the lender's rhythm tells when.
 */
bool card_expects(const struct card *c, int tenant, int64_t now, struct window *w)
{
	const struct tenant *mine = tenant >= 0 ? &c->tenant[tenant] : NULL;
	struct window next;
	bool any = false;

	if (!mine || !c->tuning.expect || c->waited || c->current.tenant != tenant || !mine->lend || mine->had < c->had)
		return false;
	if (!mine->borrows_since || now - mine->borrows_since < LENT_NS)
		return false;
	for (int i = 0; i < c->tenants; i++) {
		const struct tenant *t = &c->tenant[i];
		if (i == tenant || !t->used || !is_quick(t) || !is_behind(c, t) || t->credit < start_credit(c, t))
			continue;
		if (rhythm_expects(&t->rhythm, now, &next) && (!any || next.until < w->until)) {
			*w = next;
			any = true;
		}
	}
	return any;
}

bool card_active(const struct card *c, int64_t now)
{
	if (c->current.tenant != NOBODY)
		return true;
	for (int i = 0; i < c->tenants; i++)
		for (int r = 0; c->tenant[i].used && r < c->tenant[i].rows; r++)
			if (c->tenant[i].row[r].closing_since || asks(&c->tenant[i].row[r], now))
				return true;
	return false;
}
