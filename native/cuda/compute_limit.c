/*
 * Where launches wait for their process's turn. The launching thread's way is two atomic steps while the turn is held;
 * one thread per card asks for turns, watches the work in flight, and ends the turn when it is used up or idle.
 */
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "compute_limit.h"
#include "driver_symbols.h"
#include "log.h"
#include "streams.h"
#include "system.h"

#define TICK_NS (MS / 4)
#define LINGER_NS MS           /* a pause shorter than this does not end a turn */
#define STUCK_NS (100 * MS)    /* a drain that takes longer may be waiting for a launch we hold back */
#define TRICKLE_NS (50 * MS)

static void set_state(struct gate *g, unsigned state)
{
	atomic_store(&g->state, state);
	futex_wake(&g->state);
}

static void charge_time(struct gate *g, int64_t ns)
{
	struct card *c = g->device->card;
	unsigned price = atomic_load(&c->price);

	card_charge(c, g->tenant, price > 10000 ? ns * price / 10000 : ns);
	atomic_fetch_add(&c->busy, ns);
	atomic_fetch_add(&session.container->process[atomic_load(&session.process)].busy_ns[g->device->index], (uint64_t)ns);
}

/* Sleeps until this process may launch; false if the gate was switched off meanwhile. */
static bool take_turn(struct gate *g)
{
	struct card *c = g->device->card;
	int64_t wait;

	while (atomic_load(&g->on)) {
		_Atomic unsigned *wake = &c->slot[g->slot].wake;
		unsigned seen = atomic_load(wake);
		if (card_take_turn(c, g->slot, now_ns(), &wait))
			return true;
		futex_wait(wake, seen, wait < 2 * MS ? wait : 2 * MS);
	}
	return false;
}

/*
 * Opens the gate until the turn is used up, asked for by others, or not used. Returns the time up to which it was
 * charged. This thread may not be scheduled for long: it leaves out only time in which it saw that nothing ran.
 */
static int64_t hold_turn(struct gate *g)
{
	struct card *c = g->device->card;
	uint64_t seen = atomic_load(&g->launches), launches;
	int64_t begin = now_ns(), idle = begin, charged, now, entered;

	atomic_store(&g->entered, 0);
	set_state(g, GATE_OPEN);
	/* The launching thread has to wake up first: that is not charged. It says itself when it did. */
	for (now = begin; now - begin < LINGER_NS; now = now_ns()) {
		if (atomic_load(&g->inside) || atomic_load(&g->launches) != seen)
			break;
		idle = now;
		sleep_ns(MS / 100);
	}
	entered = atomic_load(&g->entered);
	begin = charged = entered > idle ? entered : idle;
	for (;;) {
		sleep_ns(TICK_NS);
		now = now_ns();
		charge_time(g, now - charged);
		charged = now;
		launches = atomic_load(&g->launches);
		if (launches != seen || atomic_load(&g->inside) || !streams_idle(g))
			idle = 0;
		else if (!idle)
			idle = now;
		seen = launches;
		if (!atomic_load(&g->on) || card_should_yield(c, g->slot, now, now - begin))
			return charged;
		card_renew_turn(c, now);
		if (idle && now - idle > LINGER_NS) {
			charge_time(g, idle - now); /* the pause is not charged */
			return charged;
		}
	}
}

/* No launch may be on its way and none in flight when the turn ends: the next process shall have the card alone. */
static void drain_turn(struct gate *g, int64_t charged)
{
	struct card *c = g->device->card;
	int64_t now;
	bool idle;

	atomic_store(&g->closing_since, charged);
	atomic_store(&g->trickled, charged);
	set_state(g, GATE_CLOSING);
	do {
		idle = !atomic_load(&g->inside) && streams_idle(g) && !atomic_load(&g->inside);
		if (!idle)
			sleep_ns(MS / 50);
		now = now_ns();
		charge_time(g, now - charged);
		charged = now;
		if (card_has_turn(c, g->slot))
			card_renew_turn(c, now);
	} while (!idle);
	set_state(g, GATE_CLOSED);
}

static void end_turn(struct gate *g)
{
	struct card *c = g->device->card;
	int next = card_pass_turn(c, g->slot, now_ns());

	if (next >= 0) {
		atomic_fetch_add(&c->slot[next].wake, 1);
		futex_wake(&c->slot[next].wake);
	}
}

static void *track(void *arg)
{
	struct gate *g = arg;
	int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

	prctl(PR_SET_NAME, "elastic-turns");
	prctl(PR_SET_TIMERSLACK, 1000UL);
	if (real_cuThreadExchangeStreamCaptureMode)
		real_cuThreadExchangeStreamCaptureMode(&relaxed);
	for (;;) {
		if (!atomic_exchange(&g->want, 0)) {
			futex_wait(&g->want, 0, 1000 * MS);
			continue;
		}
		if (!take_turn(g)) {
			set_state(g, GATE_CLOSED); /* wakes the launches that wait: the gate is off */
			continue;
		}
		drain_turn(g, hold_turn(g));
		end_turn(g);
	}
	return NULL;
}

/* While a drain does not end, a launch now and then: the work in flight may be waiting for it. */
static bool trickle(struct gate *g)
{
	int64_t now = now_ns(), last = atomic_load(&g->trickled);

	return now - atomic_load(&g->closing_since) > STUCK_NS && now - last > TRICKLE_NS &&
		atomic_compare_exchange_strong(&g->trickled, &last, now);
}

static int wait_for_turn(struct gate *g, int pass)
{
	unsigned state;

	if (!atomic_exchange(&g->tracked, true) && !thread_start(track, g)) {
		log_error("no thread for the turns on card %s", g->device->uuid);
		atomic_store(&g->tracked, false);
	}
	for (;;) {
		atomic_fetch_add(&g->inside, 1);
		state = atomic_load(&g->state);
		if (state == GATE_OPEN || (state == GATE_CLOSING && trickle(g))) {
			int64_t first = 0;
			atomic_compare_exchange_strong(&g->entered, &first, now_ns());
			return pass | PASS_TURN;
		}
		atomic_fetch_sub(&g->inside, 1);
		if (!atomic_load(&g->on))
			return pass;
		memory_call_leave(pass); /* a swap must not wait for us */
		if (!atomic_exchange(&g->want, 1))
			futex_wake(&g->want);
		int64_t since = now_ns();
		futex_wait(&g->state, state, 10 * MS);
		atomic_fetch_add(&g->waited_ns, (uint64_t)(now_ns() - since));
		pass = memory_call_enter();
	}
}

int launch_enter(struct device *d, CUstream stream)
{
	int pass = memory_call_enter();
	struct gate *g = d ? atomic_load_explicit(&d->gate, memory_order_acquire) : NULL;

	if (!g || !atomic_load_explicit(&g->on, memory_order_relaxed) || stream_capturing(stream))
		return pass;
	atomic_fetch_add(&g->inside, 1);
	if (atomic_load(&g->state) == GATE_OPEN)
		return pass | PASS_TURN;
	atomic_fetch_sub(&g->inside, 1);
	return wait_for_turn(g, pass);
}

void launch_leave(struct device *d, CUstream stream, int pass)
{
	if (pass & PASS_TURN) {
		struct gate *g = atomic_load_explicit(&d->gate, memory_order_acquire);
		atomic_store_explicit(&g->launches, atomic_load_explicit(&g->launches, memory_order_relaxed) + 1, memory_order_relaxed);
		stream_launched(g, stream);
		atomic_fetch_sub(&g->inside, 1);
	}
	memory_call_leave(pass);
}

static struct gate *make_gate(struct device *d, int tenant, int64_t now)
{
	struct gate *g = calloc(1, sizeof *g), *none = NULL;

	if (!g)
		return NULL;
	g->device = d;
	g->tenant = (unsigned)tenant;
	g->owner = hash_text(session.container_name) ^ ((uint64_t)getpid() << 32) ^ (uint64_t)now;
	g->slot = card_slot_take(d->card, g->tenant, g->owner, now);
	if (g->slot < 0 || !atomic_compare_exchange_strong(&d->gate, &none, g)) {
		if (g->slot >= 0)
			card_slot_leave(d->card, g->slot);
		free(g);
		return none;
	}
	return g;
}

void compute_limit_reload(struct device *d)
{
	int64_t now = now_ns();
	int tenant = card_tenant(d->card, session.container_name, atomic_load(&d->share), atomic_load(&d->lend), now);
	struct gate *g = atomic_load(&d->gate);

	if (tenant < 0) {
		log_error("card %s: more than %d containers", d->uuid, MAX_TENANTS);
		return;
	}
	if (!g)
		g = make_gate(d, tenant, now);
	if (!g)
		return;
	card_slot_renew(d->card, g->slot, now);
	atomic_store(&g->on, atomic_load(&d->share) < 10000 || card_contended(d->card, g->tenant, now));
}

void compute_limit_fork_child(void)
{
	for (int i = 0; i < MAX_DEVICES; i++)
		atomic_store(&session.device[i].gate, NULL);
	streams_fork_child();
}
