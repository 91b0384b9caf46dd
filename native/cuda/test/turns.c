/* The turns on a card in simulated time: shares, and what hostile processes can and cannot do to others. */
#include "check.h"

#define SECOND (1000 * MS)
#define STEP (MS / 10)

/* A process on the card, as the library behaves, or worse. */
struct player {
	unsigned share;
	bool lend;
	int64_t kernel;      /* its launches take so long */
	bool idle;           /* it never wants the card */
	int64_t drain;       /* so long it goes on running after it was asked to give the turn back */
	bool forges;         /* it writes random numbers over its request */
	bool claims_unused;  /* it says that it did not use its turns */
	/* state */
	int tenant;
	struct said said;
	unsigned turn;       /* the turn it has; 0: none */
	int64_t left;        /* of its work in flight, which halves its speed while another has some, too */
	int64_t over_since;
	int64_t ran;         /* card time it had */
};

static struct card *card_here(void)
{
	struct card *c = calloc(1, sizeof *c);
	CHECK(c);
	card_start(c, 1);
	return c;
}

static uint64_t random_state = 88172645463325252;
static unsigned any(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (unsigned)(random_state >> 16);
}

/* What the library does in a step: takes the turn, launches, gives it back when all is done and the turn is over or not used. */
static void play(struct player *p, unsigned turn, int64_t now)
{
	bool over;

	p->said.beat++;
	if (!p->turn && (turn & 1) && turn != p->said.released) {
		p->turn = turn;
		p->over_since = 0;
	}
	p->said.wants = SAYS_NOTHING;
	if (!p->turn) {
		p->said.wants = !p->idle ? SAYS_WANTS : SAYS_NOTHING;
		return;
	}
	if (turn != p->turn && !p->over_since)
		p->over_since = now;
	over = p->over_since && now >= p->over_since + p->drain;
	while (!over && p->left <= STEP && !p->idle)
		p->left += p->kernel;
	if (p->left <= 0 && (over || p->idle)) {
		p->said.released = p->turn;
		p->said.unused_us = p->claims_unused ? 1000000 : 0;
		p->turn = 0;
	} else if (over && p->left <= ENDING_NS) {
		p->said.wants = SAYS_ENDING;
	}
}

static void run_card(struct player *p, int n)
{
	int in_flight = 0;

	for (int i = 0; i < n; i++)
		in_flight += p[i].left > 0;
	for (int i = 0; i < n; i++)
		if (p[i].left > 0) {
			p[i].left -= STEP / in_flight;
			p[i].ran += STEP / in_flight;
		}
}

static void simulate(struct card *c, struct player *p, int n, int64_t end)
{
	for (int i = 0; i < n; i++) {
		p[i].tenant = card_tenant_join(c, p[i].share, p[i].lend, 1);
		CHECK(p[i].tenant >= 0);
	}
	for (int64_t now = 1; now < end; now += STEP) {
		for (int i = 0; i < n; i++) {
			struct said forged = {any() % 3, any(), any(), any()};
			play(&p[i], c->tenant[p[i].tenant].row[0].turn, now);
			card_row_said(c, p[i].tenant, 0, p[i].forges && any() % 2 ? &forged : &p[i].said, now);
			if (p[i].forges)
				card_row_said(c, p[i].tenant, 1 + (int)(any() % (MAX_ROWS - 1)), &forged, now);
		}
		card_decide(c, now);
		run_card(p, n);
	}
}

static void near(int64_t got, int64_t want, double by, int line)
{
	if ((double)got < (double)want * (1 - by) || (double)got > (double)want * (1 + by)) {
		fprintf(stderr, "line %d: %.1f ms, want %.1f\n", line, (double)got / 1e6, (double)want / 1e6);
		_exit(1);
	}
}
#define NEAR(got, want, by) near(got, want, by, __LINE__)

static void shares_hold_alone(void)
{
	static const unsigned shares[] = {100, 1000, 3000, 5000, 7000, 9900};
	static const int64_t kernels[] = {MS, 11 * MS, 70 * MS};
	for (unsigned s = 0; s < 6; s++)
		for (unsigned k = 0; k < 3; k++) {
			struct player p = {.share = shares[s], .kernel = kernels[k]};
			simulate(card_here(), &p, 1, 20 * SECOND);
			int64_t want = 20 * SECOND / 10000 * shares[s]; /* up to a kernel or a turn, whichever is longer */
			NEAR(p.ran, want, 0.02 + (double)(kernels[k] + 2 * TURN_NS) / (double)want);
		}
}

static void shares_hold_side_by_side(void)
{
	struct player two[] = {{.share = 3000, .kernel = MS / 2}, {.share = 7000, .kernel = MS / 2}};
	simulate(card_here(), two, 2, 20 * SECOND);
	NEAR(two[0].ran, 6 * SECOND, 0.02);
	NEAR(two[1].ran, 14 * SECOND, 0.02);
	struct player mixed[] = {{.share = 2000, .kernel = 30 * MS}, {.share = 3000, .kernel = MS / 2}, {.share = 4000, .kernel = 3 * MS}};
	simulate(card_here(), mixed, 3, 60 * SECOND);
	NEAR(mixed[0].ran, 12 * SECOND, 0.03);
	NEAR(mixed[1].ran, 18 * SECOND, 0.03);
	NEAR(mixed[2].ran, 24 * SECOND, 0.03);
}

static void shares_beyond_the_card_are_proportional(void)
{
	struct player p[] = {{.share = 10000, .kernel = MS}, {.share = 5000, .kernel = MS}};
	simulate(card_here(), p, 2, 30 * SECOND);
	NEAR(p[0].ran, 20 * SECOND, 0.05);
	NEAR(p[1].ran, 10 * SECOND, 0.05);
}

static void lent_time_is_used_and_taken_back(void)
{
	struct player p[] = {{.share = 3000, .lend = true, .kernel = MS}, {.share = 7000, .kernel = MS, .idle = true}};
	simulate(card_here(), p, 2, 10 * SECOND);
	NEAR(p[0].ran, 10 * SECOND, 0.02);
	struct player q[] = {{.share = 3000, .lend = true, .kernel = MS}, {.share = 7000, .kernel = MS}};
	simulate(card_here(), q, 2, 20 * SECOND);
	NEAR(q[0].ran, 6 * SECOND, 0.03);
	NEAR(q[1].ran, 14 * SECOND, 0.03);
}

/* ---- hostile neighbours ---- */

static void a_neighbour_that_forges_its_requests_takes_nothing(void)
{
	struct player p[] = {{.share = 3000, .kernel = MS, .forges = true}, {.share = 7000, .kernel = MS}};
	simulate(card_here(), p, 2, 20 * SECOND);
	NEAR(p[1].ran, 14 * SECOND, 0.03);
}

/* Each of its turns lasts almost as long as is borne: it has less of them, and the other no less of the card. */
static void a_neighbour_that_does_not_let_go_pays_for_it(void)
{
	struct player p[] = {{.share = 3000, .kernel = MS, .drain = 1900 * MS}, {.share = 7000, .kernel = MS}};
	simulate(card_here(), p, 2, 60 * SECOND);
	NEAR(p[1].ran, 42 * SECOND, 0.05);
	NEAR(p[0].ran, 18 * SECOND, 0.1);
}

/* One that never lets go shares the card with the next after the grace, and gets no turn again. */
static void a_turn_that_is_never_given_back_is_taken(void)
{
	struct player p[] = {{.share = 3000, .kernel = MS, .drain = 3600 * SECOND}, {.share = 7000, .kernel = MS}};
	struct card *c = card_here();
	simulate(c, p, 2, 60 * SECOND);
	CHECK(p[1].ran > (int64_t)(0.7 / 2 * (double)(60 * SECOND - GRACE_NS)) * 95 / 100); /* the card divides its time */
	EQUAL(c->tenant[p[0].tenant].row[0].turn, 2); /* it had one */
	CHECK(c->tenant[p[0].tenant].credit < -30 * SECOND);
}

static void time_that_others_waited_for_is_not_refunded(void)
{
	struct player honest[] = {{.share = 5000, .kernel = MS}, {.share = 5000, .kernel = MS}};
	struct player lies[] = {{.share = 5000, .kernel = MS, .claims_unused = true}, {.share = 5000, .kernel = MS}};
	simulate(card_here(), honest, 2, 20 * SECOND);
	simulate(card_here(), lies, 2, 20 * SECOND);
	NEAR(lies[1].ran, honest[1].ran, 0.02);
}

static void unused_time_is_refunded_when_nobody_waits(void)
{
	struct card *c = card_here();
	int t = card_tenant_join(c, 5000, false, 1);
	struct said s = {.wants = 1, .beat = 1};

	card_row_said(c, t, 0, &s, 1);
	card_decide(c, 1);
	CHECK(c->tenant[t].row[0].turn == 1);
	int64_t before = c->tenant[t].credit;
	s = (struct said){.released = 1, .beat = 2, .unused_us = 1000};
	card_row_said(c, t, 0, &s, 1 + 5 * MS);
	EQUAL(c->tenant[t].credit, before + 5 * MS / 2 - 4 * MS); /* earned half of 5, paid for 4 */
	/* and never more than a turn's pauses can be, whatever it says */
	s = (struct said){.wants = 1, .released = 1, .beat = 3};
	card_row_said(c, t, 0, &s, 1 + 100 * MS);
	card_decide(c, 1 + 100 * MS);
	before = c->tenant[t].credit;
	s = (struct said){.released = 3, .beat = 4, .unused_us = UINT32_MAX};
	card_row_said(c, t, 0, &s, 1 + 110 * MS);
	EQUAL(c->tenant[t].credit, before + 10 * MS / 2 - 10 * MS + 2 * LINGER_NS);
}

static void a_process_that_dies_loses_the_turn(void)
{
	struct card *c = card_here();
	int a = card_tenant_join(c, 5000, false, 1), b = card_tenant_join(c, 5000, false, 1);
	struct said wants = {.wants = 1, .beat = 1};
	int64_t now = 1;

	card_row_said(c, a, 0, &wants, now);
	card_decide(c, now);
	wants.beat = 2; /* it took it, and dies */
	card_row_said(c, a, 0, &wants, now += MS);
	for (wants.beat = 3; now < LEASE_NS; now += MS, wants.beat++) {
		card_row_said(c, b, 0, &wants, now);
		card_decide(c, now);
		EQUAL(c->tenant[b].row[0].turn, 0);
	}
	wants.beat++;
	card_row_said(c, b, 0, &wants, now += 3 * MS);
	card_decide(c, now);
	EQUAL(c->current.tenant, b);
	CHECK(c->tenant[b].row[0].turn & 1 && !(c->tenant[a].row[0].turn & 1));
}

static void a_waiter_that_died_has_the_turn_for_a_moment(void)
{
	struct card *c = card_here();
	int a = card_tenant_join(c, 5000, false, 1), b = card_tenant_join(c, 5000, false, 1);
	struct said wants = {.wants = 1, .beat = 1};
	int64_t now = 1;

	card_row_said(c, a, 0, &wants, now); /* asks, and is dead */
	card_decide(c, now);
	EQUAL(c->current.tenant, a);
	for (; c->current.tenant != b && now < SECOND; now += MS, wants.beat++) {
		card_row_said(c, b, 0, &wants, now);
		card_decide(c, now);
	}
	CHECK(now <= ACCEPT_NS + 3 * MS);
	/* and one that has been silent for long is not offered it at all */
	card_tenant_leave(c, b);
	card_decide(c, now += ASKING_NS);
	EQUAL(c->current.tenant, -1);
}

static void tenants_are_counted_and_come_free(void)
{
	struct card *c = card_here();
	struct said said = {.beat = 1};
	for (int i = 0; i < MAX_TENANTS; i++)
		EQUAL(card_tenant_join(c, 100, false, 1), i);
	EQUAL(card_tenant_join(c, 100, false, 1), -1);
	CHECK(!card_contended(c, 3, 2));
	card_row_said(c, 7, 255, &said, 2);
	CHECK(card_contended(c, 3, 2) && !card_contended(c, 7, 2));
	CHECK(!card_contended(c, 3, 2 + PRESENT_NS));
	card_tenant_leave(c, 7);
	CHECK(!card_contended(c, 3, 2));
	EQUAL(card_tenant_join(c, 100, false, 3), 7);
	EQUAL(c->tenant[7].rows, 0);
}

/* ---- memory ---- */

static void says(struct card *c, int tenant, struct said_memory m, int64_t now)
{
	static unsigned beat;
	card_row_said(c, tenant, 0, &(struct said){.beat = ++beat}, now);
	card_row_memory(c, tenant, 0, &m, now);
}

static void the_longest_starved_is_moved_out_for(void)
{
	struct card *c = card_here();
	struct row *r[3];
	int64_t now = 1;
	for (int i = 0; i < 3; i++) {
		EQUAL(card_tenant_join(c, 10000, false, now), i);
		card_tenant_limits(c, i, 10000, false, 80 * GiB, 10 * SECOND);
		r[i] = &c->tenant[i].row[0];
	}
	says(c, 0, (struct said_memory){.resident = 70 * GiB, .runnable = 1}, now);
	says(c, 1, (struct said_memory){.missing = 20 * GiB}, now);
	says(c, 2, (struct said_memory){.missing = 10 * GiB}, now + MS);
	card_decide_evictions(c, now += 2 * MS);
	EQUAL(r[0]->eviction, 1);
	EQUAL(r[0]->evict, 20 * GiB);
	CHECK(card_may_enter(c, 1, 0, now) && !card_may_enter(c, 2, 0, now) && !card_may_enter(c, 0, 0, now));
	EQUAL(card_movable(c, now), 1);
	says(c, 0, (struct said_memory){.resident = 50 * GiB, .moved = 1}, now);
	EQUAL(r[0]->evict, 0);
	says(c, 1, (struct said_memory){.resident = 20 * GiB, .runnable = 1}, now);
	card_decide_evictions(c, now += MS);
	EQUAL(r[0]->eviction + r[1]->eviction, 1); /* the quantum is not over */
	for (int64_t end = now + 10 * SECOND; now < end; now += SECOND) {
		says(c, 0, (struct said_memory){.resident = 50 * GiB, .moved = 1}, now);
		says(c, 1, (struct said_memory){.resident = 20 * GiB, .runnable = 1}, now);
		says(c, 2, (struct said_memory){.missing = 10 * GiB}, now);
	}
	card_decide_evictions(c, now);
	EQUAL(r[0]->eviction, 2); /* it does not run anyway */
	CHECK(card_may_enter(c, 2, 0, now));
}

/* It claims memory and never moves: the next is asked. It claims to starve for ever: others get their quantum. */
static void forged_memory_stops_nobody(void)
{
	struct card *c = card_here();
	int64_t now = 1, entered = 0;
	for (int i = 0; i < 3; i++) {
		card_tenant_join(c, 10000, false, now);
		card_tenant_limits(c, i, 10000, false, 80 * GiB, 10 * SECOND);
	}
	for (; now < 200 * SECOND; now += MS * 100) {
		says(c, 0, (struct said_memory){.resident = UINT64_MAX, .runnable = 7, .moved = any()}, now);
		says(c, 1, (struct said_memory){.resident = 10 * GiB, .missing = UINT64_MAX}, now); /* has come first, and starves for ever */
		says(c, 2, (struct said_memory){.resident = 30 * GiB, .missing = GiB, .moved = c->tenant[2].row[0].eviction}, now + 1);
		card_decide_evictions(c, now + 2);
		CHECK(c->tenant[0].row[0].resident <= 80 * GiB && c->tenant[0].row[0].evict <= 80 * GiB && c->tenant[2].row[0].evict <= 80 * GiB);
		if (c->evictor_tenant == 2)
			entered++;
	}
	CHECK(entered > 0);
	CHECK(c->tenant[2].row[0].eviction > 0); /* not only the liar was asked */
}

/* Average watts at so many percent of the time, as measured on an H200 with 700 W, and how much faster than always-on it ran. */
static void time_at_high_clocks_costs_what_it_gains(void)
{
	static const struct { double busy, watts, faster; } measured[] = {
		{.1012, 196.7, 1.085}, {.2012, 279.9, 1.097}, {.2999, 351.6, 1.118}, {.5039, 519.2, 1.139}, {.6992, 634.1, 1.119}, {.8995, 680.6, 1.039}, {1, 689.1, 1},
	};
	for (unsigned i = 0; i < sizeof measured / sizeof *measured; i++)
		NEAR((int64_t)(power_price(measured[i].busy, measured[i].watts, 700) * 1e6), (int64_t)(measured[i].faster * 1e10), 0.03);
	EQUAL(power_price(0.3, 200, 700), 10000); /* far from the limit: time is time */
	EQUAL(power_price(0, 80, 700), 10000);
	EQUAL(power_price(0.5, 100, 0), 10000);
	EQUAL(power_price(0.05, 5000, 700), 12355); /* a reading that makes no sense is bounded */
}

MAIN(T(shares_hold_alone), T(shares_hold_side_by_side), T(shares_beyond_the_card_are_proportional), T(lent_time_is_used_and_taken_back),
	T(a_neighbour_that_forges_its_requests_takes_nothing), T(a_neighbour_that_does_not_let_go_pays_for_it),
	T(a_turn_that_is_never_given_back_is_taken), T(time_that_others_waited_for_is_not_refunded), T(unused_time_is_refunded_when_nobody_waits),
	T(a_process_that_dies_loses_the_turn), T(a_waiter_that_died_has_the_turn_for_a_moment), T(tenants_are_counted_and_come_free),
	T(the_longest_starved_is_moved_out_for), T(forged_memory_stops_nobody), T(time_at_high_clocks_costs_what_it_gains))
