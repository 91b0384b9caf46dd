/* How soon short steps come between the work of others, what that costs, and what is gained by who only says that its steps are short. */
#include "card_model.h"

#define SECOND (1000 * MS)
#define DECODE (115 * MS / 100)
#define BURSTS .kernel = DECODE, .step = 1, .pause = 10 * MS
#define DECODES .kernel = DECODE, .step = 1

static struct card *play(struct player *p, int n, int64_t end)
{
	struct card *c = calloc(1, sizeof *c);
	CHECK(c);
	card_start(c, 1);
	model_play(c, p, n, end);
	return c;
}

#define PLAY(p, end) play(p, (int)(sizeof(p) / sizeof *(p)), end)

static void within(const char *what, int64_t got, int64_t least, int64_t most, int line)
{
	if (got < least || got > most) {
		fprintf(stderr, "line %d: %s: %.2f ms, want %.2f to %.2f\n", line, what, (double)got / 1e6, (double)least / 1e6, (double)most / 1e6);
		_exit(1);
	}
}
#define WITHIN(got, least, most) within(#got, got, least, most, __LINE__)
#define PART(whole, percent) ((whole) / 1000 * (int64_t)(10 * (percent)))

/* A decode with pauses beside products of four kinds, by default: no class says anything. Products that take longer than the driver's time slice hold the step up for that long. */
static void bursts_beside_products(void)
{
	static const struct { int64_t kernel; int step; double p50, lent_p50; } cases[] = {{MS / 5, 0, 2, 2}, {134 * MS / 100, 1, 2, 2}, {8 * MS / 5, 0, 2, 2.2}, {64 * MS / 5, 0, 3.5, 3.5}};
	for (unsigned k = 0; k < 4; k++)
		for (int lend = 0; lend < 2; lend++) {
			static struct player p[2];
			memset(p, 0, sizeof p);
			p[0] = (struct player){.share = 5000, .lend = lend, BURSTS};
			p[1] = (struct player){.share = 5000, .lend = lend, .kernel = cases[k].kernel, .step = cases[k].step};
			PLAY(p, 6 * SECOND);
			WITHIN(model_at(&p[0], 5000), DECODE, PART(MS, 100 * (lend ? cases[k].lent_p50 : cases[k].p50)));
			WITHIN(model_at(&p[0], 9900), DECODE, 5 * MS);
			if (lend)
				WITHIN(p[0].ran + p[1].ran, PART(6 * SECOND, 92), 6 * SECOND); /* a twentieth of the time of who borrows is given up, at most */
			else
				WITHIN(p[1].ran, PART(6 * SECOND, 47), PART(6 * SECOND, 52.5));
		}
}

static void two_decodes(void)
{
	for (int lend = 0; lend < 2; lend++) {
		static struct player p[2];
		memset(p, 0, sizeof p);
		p[0] = p[1] = (struct player){.share = 5000, .lend = lend, DECODES};
		PLAY(p, 6 * SECOND);
		for (int i = 0; i < 2; i++) {
			WITHIN(model_at(&p[i], 9900), DECODE, 5 * MS);
			for (int s = 1; s < 6; s++)
				WITHIN(p[i].each[s], PART(SECOND, 47.2), PART(SECOND, 52.5));
		}
		WITHIN(p[0].ran + p[1].ran, PART(6 * SECOND, 95), 6 * SECOND);
	}
}

/* A decode that wants all it can get, beside products: both have their share. */
static void a_decode_beside_products(void)
{
	static const int64_t kernels[] = {MS / 5, 8 * MS / 5, 64 * MS / 5};
	for (int k = 0; k < 3; k++) {
		static struct player p[2];
		memset(p, 0, sizeof p);
		p[0] = (struct player){.share = 5000, DECODES};
		p[1] = (struct player){.share = 5000, .kernel = kernels[k]};
		PLAY(p, 6 * SECOND);
		WITHIN(model_at(&p[0], 9900), DECODE, kernels[k] + 11 * MS / 2);
		WITHIN(p[0].ran, PART(6 * SECOND, 45.5), PART(6 * SECOND, 51));
		WITHIN(p[1].ran, PART(6 * SECOND, 47), PART(6 * SECOND, 51));
	}
}

/* Where nobody works in short steps turns are long, and shares as exact as they are. */
static void products_have_long_turns(void)
{
	static struct player p[2];
	p[0] = (struct player){.share = 3000, .kernel = 8 * MS / 5};
	p[1] = (struct player){.share = 7000, .kernel = 8 * MS / 5};
	PLAY(p, 10 * SECOND);
	WITHIN(p[0].ran, PART(10 * SECOND, 29.5), PART(10 * SECOND, 30.5));
	WITHIN(p[1].ran, PART(10 * SECOND, 69), PART(10 * SECOND, 70.5));
	CHECK(p[0].changes + p[1].changes < 250);
	static struct player q[2]; /* a class says throughput: short steps do not make it quick */
	q[0] = q[1] = (struct player){.share = 5000, DECODES, .latency = LATENCY_THROUGHPUT};
	PLAY(q, 5 * SECOND);
	CHECK(q[0].changes + q[1].changes < 150);
}

/* Ten of a tenth each, as test/gpu/run ten: three with pauses, three decodes, products, small kernels. */
static void ten_containers(void)
{
	static struct player p[10];
	for (int i = 0; i < 10; i++)
		p[i] = (struct player){.share = 1000, .lend = true, .kernel = DECODE, .step = 1, .pause = i < 3 ? 10 * MS : 0};
	p[6] = p[7] = (struct player){.share = 1000, .lend = true, .kernel = 8 * MS / 5};
	p[8] = (struct player){.share = 1000, .lend = true, .kernel = 64 * MS / 5};
	p[9] = (struct player){.share = 1000, .lend = true, .kernel = MS / 50, .step = 16};
	PLAY(p, 10 * SECOND);
	for (int i = 0; i < 6; i++)
		WITHIN(model_at(&p[i], 9900), DECODE, (i < 3 ? 25 : 65) * MS);
	for (int i = 3; i < 9; i++)
		WITHIN(p[i].ran, PART(10 * SECOND, 8), PART(10 * SECOND, 12));
}

/* Who comes back in its rhythm finds the card free, or soon so, although the other always has work: in any phase of the two. */
static void a_rhythm_is_expected(void)
{
	for (int64_t kernel = MS; kernel < 2 * MS; kernel += MS / 8)
		for (int step = 0; step < 2; step++) {
			static struct player p[2];
			memset(p, 0, sizeof p);
			p[0] = (struct player){.share = 5000, .lend = true, BURSTS, .jitter = MS / 5};
			p[1] = (struct player){.share = 5000, .lend = true, .kernel = kernel, .step = step};
			PLAY(p, 4 * SECOND);
			WITHIN(model_at(&p[0], 5000), DECODE, 2 * MS);
			WITHIN(model_at(&p[0], 9900), DECODE, 35 * MS / 10);
			WITHIN(p[0].ran + p[1].ran, PART(4 * SECOND, 88.5), 4 * SECOND);
		}
}

/* Time that is a container's own is never given up, nor time for which others wait, nor for one that would not come at once. */
static void only_lent_time_makes_way(void)
{
	static struct card c;
	struct window w;
	card_start(&c, 1);
	int lender = card_tenant_join(&c, 5000, true, 1), borrower = card_tenant_join(&c, 5000, true, 1);
	struct tenant *l = &c.tenant[lender], *b = &c.tenant[borrower];
	l->latency = LATENCY_LOW;
	l->rhythm = (struct rhythm){.rested = SECOND, .pause = 10 * MS};
	l->credit = 50 * MS;
	c.had = b->had = SECOND;
	b->borrows_since = SECOND - LENT_NS;
	c.current = (struct current){borrower, 0};
	CHECK(card_expects(&c, borrower, SECOND, &w) && w.until > SECOND + 10 * MS && w.until < SECOND + 11 * MS);
	CHECK(!card_expects(&c, lender, SECOND, &w) && !card_expects(&c, -1, SECOND, &w));
	CHECK(!card_expects(&c, borrower, SECOND + 11 * MS, &w)); /* it did not come */
	b->borrows_since = 0; /* it has credit */
	CHECK(!card_expects(&c, borrower, SECOND, &w));
	b->borrows_since = SECOND - LENT_NS + 1; /* it had some just now */
	CHECK(!card_expects(&c, borrower, SECOND, &w));
	b->borrows_since = SECOND - LENT_NS;
	b->lend = false;
	CHECK(!card_expects(&c, borrower, SECOND, &w));
	b->lend = c.waited = true;
	CHECK(!card_expects(&c, borrower, SECOND, &w));
	c.waited = false;
	b->had -= MS; /* another has had more */
	CHECK(!card_expects(&c, borrower, SECOND, &w));
	b->had += MS;
	l->had = SECOND; /* the lender is not below its share */
	CHECK(!card_expects(&c, borrower, SECOND, &w));
	l->had = 0;
	l->latency = LATENCY_THROUGHPUT;
	CHECK(!card_expects(&c, borrower, SECOND, &w));
	l->latency = LATENCY_LOW;
	CHECK(card_expects(&c, borrower, SECOND, &w));
}

/* What is kept free for who is expected back costs the card little, whatever its pauses and the launches of the other are. */
static void making_way_costs_little(void)
{
	for (int mix = 0; mix < 30; mix++) {
		int64_t kernel = MS / 10 + any() % (6 * MS), pause = MS / 2 + any() % (30 * MS), used[2], took[2];
		uint64_t seed = random_state;
		for (int expect = 0; expect < 2; expect++) {
			static struct player p[2];
			struct card *c = calloc(1, sizeof *c);
			memset(p, 0, sizeof p);
			random_state = seed;
			CHECK(c);
			p[0] = (struct player){.share = 5000, .lend = true, .kernel = DECODE, .step = 1, .pause = pause};
			p[1] = (struct player){.share = 5000, .lend = true, .kernel = kernel};
			card_start(c, 1);
			c->tuning.expect = expect;
			model_play(c, p, 2, 4 * SECOND);
			used[expect] = p[0].ran + p[1].ran;
			took[expect] = model_at(&p[0], 5000);
			free(c);
		}
		WITHIN(used[1], used[0] - PART(4 * SECOND, 5.5), 4 * SECOND);
		WITHIN(took[1], 0, took[0] + MS / 10);
	}
}

/* ---- who only says so ---- */

/* A product that says its steps are short has no more than its share, and its neighbour no less than beside an honest one, but for the changes. */
static void a_forged_word_gains_no_time(void)
{
	static const int64_t kernels[] = {MS / 5, 8 * MS / 5, 64 * MS / 5};
	for (int k = 0; k < 3; k++)
		for (int lend = 0; lend < 2; lend++) {
			static struct player p[2];
			memset(p, 0, sizeof p);
			p[0] = (struct player){.share = 5000, .lend = lend, .kernel = kernels[k], .fakes = true};
			p[1] = (struct player){.share = 5000, .lend = lend, .kernel = 8 * MS / 5};
			PLAY(p, 6 * SECOND);
			WITHIN(p[0].ran, PART(6 * SECOND, 40), PART(6 * SECOND, 50.5));
			WITHIN(p[1].ran, PART(6 * SECOND, 47.5), PART(6 * SECOND, 52.5));
		}
}

/* One that comes with a moment's work as often as it can: it comes between two slices of the other, which has its share. */
static void a_thousand_short_steps_stop_nobody(void)
{
	for (int lend = 0; lend < 2; lend++) {
		static struct player p[2];
		memset(p, 0, sizeof p);
		p[0] = (struct player){.share = 5000, .lend = lend, .kernel = MS / 20, .step = 1, .pause = MS / 4};
		p[1] = (struct player){.share = 5000, .lend = lend, .kernel = 8 * MS / 5};
		PLAY(p, 6 * SECOND);
		WITHIN(p[1].ran, PART(6 * SECOND, lend ? 70 : 45.5), PART(6 * SECOND, lend ? 100 : 52.5));
	}
}

/* Mixes of all kinds of loads: who always has work has its share of what the card does, and who has no lending never more. */
static void shares_hold_in_any_mix(void)
{
	for (int mix = 0; mix < 40; mix++) {
		static struct player p[5];
		int n = 2 + (int)(any() % 4);
		unsigned left = 10000;
		int64_t end = 8 * SECOND;
		memset(p, 0, sizeof p);
		for (int i = 0; i < n; i++) {
			static const int64_t kernels[] = {MS / 5, DECODE, 8 * MS / 5, 5 * MS, 64 * MS / 5};
			p[i].share = i == n - 1 ? left : left / 4 + any() % (left / 3);
			left -= p[i].share;
			p[i].lend = any() % 2;
			p[i].kernel = kernels[any() % 5];
			p[i].step = any() % 2 ? (int)(any() % 4) : 0;
			p[i].pause = p[i].step && any() % 3 == 0 ? any() % (20 * MS) : 0;
			p[i].fakes = any() % 4 == 0;
		}
		play(p, n, end);
		for (int i = 0; i < n; i++) {
			int64_t work = p[i].step * p[i].kernel, want = end / 10000 * p[i].share;
			if (work)
				want = want * work / (work + GAP + DT); /* the program's own pause after each step is in its time */
			if (!p[i].pause)
				WITHIN(p[i].ran, PART(want, 84), INT64_MAX);
			if (!p[i].lend)
				WITHIN(p[i].ran, 0, PART(want, 106) + 80 * MS);
		}
	}
}

MAIN(T(bursts_beside_products), T(two_decodes), T(a_decode_beside_products), T(products_have_long_turns), T(ten_containers), T(a_rhythm_is_expected), T(only_lent_time_makes_way), T(making_way_costs_little),
	T(a_forged_word_gains_no_time), T(a_thousand_short_steps_stop_nobody), T(shares_hold_in_any_mix))
