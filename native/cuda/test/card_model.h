/*
 * A card, its driver, the library in each container and the arbiter's looks, in simulated time, in steps of 10 us. The card
 * runs one process at a time: it changes to another when the first has nothing left, or has had the driver's time slice
 * while another had work; each change takes a while. Measured on an H200: 2 ms, and 0.13 ms.
 */
#ifndef CARD_MODEL_H
#define CARD_MODEL_H
#include "check.h"
#include "../making_way.h"

#define DT (MS / 100)
#define TIMESLICE_NS (2 * MS)
#define CHANGE_NS (13 * MS / 100)
#define WAKE (6 * MS / 100)          /* a thread that slept on a futex runs */
#define GAP (2 * MS / 100)           /* between a program's result and its next launch */
#define MODEL_STEPS 40000

struct player {                      /* a container with one process */
	unsigned share;
	bool lend;
	enum latency latency;
	int64_t kernel;              /* a launch takes so long */
	int step;                    /* it launches so many, waits for them, and rests; 0: it never waits for the last two */
	int64_t pause, jitter;       /* a pause is up to so much longer, 1 ms if nothing is said */
	bool fakes;                  /* it says that its steps are short */
	/* state */
	int tenant;
	struct said said;
	int queued, todo;            /* launches in flight, and those of this step that are not */
	int64_t left;                /* of the first of them */
	enum { SHUT, HELD, CLOSING } gate;
	unsigned turn;
	int64_t woken, idle_since, next_tick, launch_at, rests_until, asked;
	struct making_way way;
	struct window window;
	int64_t makes_way;           /* until then it launches nothing */
	int64_t ran, steps, changes;
	int64_t each[64];            /* what it ran in each second */
	int64_t took[MODEL_STEPS];
};

static struct model {
	int on;                      /* whose work the card runs; -1: none yet */
	int64_t slice_since, changing_until, lost, next_look, looked_rows;
} model;

static uint64_t random_state = 88172645463325252;
static unsigned any(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (unsigned)(random_state >> 16);
}

static bool model_has_work(const struct player *p, int64_t now)
{
	return p->step ? p->todo > 0 || (!p->queued && now >= p->rests_until) : p->queued < 2;
}

static int64_t model_remaining(const struct player *p) { return p->queued ? p->left + (p->queued - 1) * p->kernel : 0; }

static bool model_makes_way(const struct card *c, struct player *p, int64_t now)
{
	struct window w;

	if (card_expects(c, p->tenant, now, &w))
		p->window = w;
	else if (c->current.tenant == p->tenant)
		p->window = (struct window){0, 0};
	if (now < p->window.from || now >= p->window.until)
		return false;
	if (c->tenant[p->tenant].row[0].turn != p->turn)
		return true; /* it was asked back, and sees that in a moment */
	if (p->makes_way > now) {
		way_was_made(&p->way, DT);
		return true;
	}
	p->makes_way = way_is_made(&p->way, p->kernel, p->window.until, now) ? p->window.until : 0;
	return p->makes_way > 0;
}

static void model_launch(struct card *c, struct player *p, int64_t now)
{
	int64_t most = card_quick(c, p->tenant, now) ? c->tuning.backlog : 0;

	if (p->step && !p->todo && !p->queued && now >= p->rests_until) {
		p->todo = p->step;
		p->asked = now;
	}
	if (p->gate == SHUT && model_has_work(p, now))
		p->said.wants = SAYS_WANTS;
	while (p->gate == HELD && now >= p->launch_at && model_has_work(p, now)) {
		if (p->queued && most && model_remaining(p) > most)
			break;
		if (p->queued && !most && p->queued * p->kernel > 4 * MS && p->queued > 1)
			break;
		if (most && model_makes_way(c, p, now))
			break;
		if (!p->queued)
			p->left = p->kernel;
		p->queued++;
		p->todo -= p->step > 0;
	}
}

/* The thread that takes, watches and gives back the turn. */
static void model_track(struct card *c, struct player *p, int64_t now)
{
	unsigned turn = c->tenant[p->tenant].row[0].turn;
	bool idle = !p->queued && !model_has_work(p, now);

	p->said.beat++;
	if (p->gate == SHUT && (turn & 1) && turn != p->said.released) {
		if (!p->woken)
			p->woken = now + WAKE;
		if (now < p->woken)
			return;
		p->woken = 0;
		p->gate = HELD;
		p->turn = turn;
		p->said.wants = SAYS_NOTHING;
		p->launch_at = now + GAP;
		p->idle_since = 0;
		p->next_tick = now + MS / 4;
		return;
	}
	if (p->gate == SHUT && turn && !(turn & 1))
		p->said.released = turn - 1;
	if (p->gate == HELD) {
		p->idle_since = idle ? (p->idle_since ? p->idle_since : now) : 0;
		if (turn != p->turn && !p->woken)
			p->woken = now + WAKE;
		if ((p->woken && now >= p->woken) || (p->idle_since && now - p->idle_since > (card_hurried(c, p->tenant) ? WAITED_LINGER_NS : LINGER_NS))) {
			p->said.unused_us = p->idle_since ? (unsigned)((now - p->idle_since) / 1000) : 0;
			p->woken = 0;
			p->makes_way = 0;
			p->gate = CLOSING;
		}
	}
	if (p->gate == CLOSING && !p->queued) {
		p->gate = SHUT;
		p->said.wants = SAYS_NOTHING;
		p->said.released = p->turn;
		p->turn = 0;
	} else if (p->gate == CLOSING) {
		p->said.wants = model_remaining(p) <= ENDING_NS ? SAYS_ENDING : SAYS_NOTHING;
	}
}

static void model_done(struct player *p, int64_t now)
{
	p->queued--;
	p->left = p->queued ? p->kernel : 0;
	p->launch_at = now + GAP;
	if (!p->step || p->queued || p->todo)
		return;
	if (now > 1000 * MS && p->steps < MODEL_STEPS)
		p->took[p->steps++] = now - p->asked;
	p->rests_until = now + GAP + p->pause + (p->pause ? any() % (p->jitter ? p->jitter : MS) : 0);
}

/* Whose work comes next on the card: the next one round that has some. */
static int model_next(const struct player *p, int n)
{
	for (int i = 1; i <= n; i++)
		if (p[(model.on + i + n) % n].queued)
			return (model.on + i + n) % n;
	return -1;
}

static void model_run(struct player *p, int n, int64_t now)
{
	int next = model_next(p, n);

	if (next < 0)
		return;
	if (next == model.on || (model.on >= 0 && !p[model.on].queued && next == model.on))
		model.slice_since = now; /* it is alone */
	if (now < model.changing_until)
		return;
	if (next != model.on && (model.on < 0 || !p[model.on].queued || now - model.slice_since >= TIMESLICE_NS)) {
		model.on = next;
		model.changing_until = now + CHANGE_NS;
		model.lost += CHANGE_NS;
		model.slice_since = now + CHANGE_NS;
		p[next].changes++;
		return;
	}
	if (!p[model.on].queued)
		return;
	p[model.on].left -= DT;
	p[model.on].ran += DT;
	p[model.on].each[now / (1000 * MS) % 64] += DT;
	if (p[model.on].left <= 0)
		model_done(&p[model.on], now + DT);
}

static void model_look(struct card *c, struct player *p, int n, int64_t now)
{
	int64_t handover;
	struct window w;

	if (now < model.next_look)
		return;
	for (int i = 0; i < n; i++)
		card_row_said(c, p[i].tenant, 0, &p[i].said, now);
	if (now - model.looked_rows >= 20 * MS) {
		model.looked_rows = now;
		for (int i = 0; i < n; i++)
			card_row_short(c, p[i].tenant, 0, p[i].fakes || (p[i].step && p[i].step * p[i].kernel <= 4 * MS && now > 100 * MS), now);
	}
	card_decide(c, now);
	handover = card_handover(c);
	if (handover && c->current.tenant < 0)
		model.next_look = now + (now - handover < 5 * MS ? MS / 40 : MS / 10);
	else if (card_expects(c, c->current.tenant, now, &w) && now >= w.from)
		model.next_look = now + MS / 40;
	else
		model.next_look = now + (card_quick(c, -1, now) ? c->tuning.look : MS / 4);
}

static void model_play(struct card *c, struct player *p, int n, int64_t end)
{
	model = (struct model){.on = -1};
	for (int i = 0; i < n; i++) {
		p[i].tenant = card_tenant_join(c, p[i].share, p[i].lend, 1);
		CHECK(p[i].tenant >= 0);
		card_tenant_latency(c, p[i].tenant, p[i].latency);
	}
	for (int64_t now = 1; now < end; now += DT) {
		for (int i = 0; i < n; i++) {
			model_track(c, &p[i], now);
			model_launch(c, &p[i], now);
		}
		model_look(c, p, n, now);
		model_run(p, n, now);
	}
}

static int model_order(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return x < y ? -1 : x > y;
}

/* How long so many of ten thousand steps took at most. */
static int64_t model_at(struct player *p, int64_t of)
{
	qsort(p->took, (size_t)p->steps, sizeof *p->took, model_order);
	return p->steps ? p->took[p->steps * of / 10000] : 0;
}
#endif
