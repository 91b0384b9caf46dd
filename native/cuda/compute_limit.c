/*
 * Where launches wait for their process's turn. The launching thread's way is two atomic steps while the turn is held;
 * one thread per card asks the arbiter for turns, watches the work in flight, and gives the turn back when it is used up
 * or idle. While there is no arbiter the processes of a container limit themselves to its share. Where a card is shared in
 * space launches do not wait: MPS holds the process to its share, and that thread counts what it uses.
 */
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "compute_limit.h"
#include "driver_symbols.h"
#include "log.h"
#include "streams.h"
#include "system.h"

#define TICK_NS (MS / 4)
#define WAITED_TICK_NS (MS / 20) /* while others wait for the turn */
#define WAKE_NS (MS / 5)         /* it takes no longer for the thread that opens the gate to wake up, as a rule */
#define STUCK_NS (100 * MS)    /* a drain that takes longer may be waiting for a launch we hold back */
#define TRICKLE_NS (50 * MS)
#define OWN_TURN 0             /* the number of a turn that no arbiter gave */

static struct request *own_request(struct gate *g) { return &g->device->request->row[g->row]; }
static struct decision *own_decision(struct gate *g) { return &g->device->decision->row[g->row]; }

bool arbiter_there(struct device *d, int64_t now)
{
	return now - atomic_load(&d->decision->beat) < AWAY_NS;
}

static void set_state(struct gate *g, unsigned state)
{
	atomic_store(&g->state, state);
	futex_wake(&g->state);
}

/* ---- without an arbiter ---- */

/* The container's credit, which its processes earn and use together. */
static int64_t own_credit(struct device *d, int64_t now)
{
	struct request_file *f = d->request;
	int64_t since = atomic_load(&f->refilled), cap = credit_cap(atomic_load(&d->share)), credit;

	if (now > since && atomic_compare_exchange_strong(&f->refilled, &since, now)) {
		int64_t past = now - since < 1000 * MS ? now - since : 1000 * MS;
		atomic_fetch_add(&f->credit, past * atomic_load(&d->share) / 10000);
	}
	credit = atomic_load(&f->credit);
	while (credit > cap && !atomic_compare_exchange_weak(&f->credit, &credit, cap))
		;
	return credit > cap ? cap : credit;
}

/* ---- steps ---- */

static int64_t waited_so_far(struct gate *g) { return (int64_t)atomic_load_explicit(&g->waited_ns, memory_order_relaxed); }

/* Tells the arbiter whether this process works in short steps, if that has changed. */
static void say_steps(struct gate *g)
{
	bool now_short = steps_short(&g->steps);
	_Atomic uint64_t *word = &g->device->request->short_steps[g->row / 64];
	uint64_t bit = (uint64_t)1 << g->row % 64;

	if (atomic_load(&g->said_short) == now_short)
		return;
	atomic_store(&g->said_short, now_short);
	if (now_short)
		atomic_fetch_or(word, bit);
	else
		atomic_fetch_and(word, ~bit);
}

void program_waited(void)
{
	struct device *d = device_current();
	struct gate *g = d ? atomic_load_explicit(&d->gate, memory_order_acquire) : NULL;

	if (!g || !steps_begun(&g->steps))
		return;
	step_end(&g->steps, now_ns(), waited_so_far(g));
	say_steps(g);
}

/* ---- turns ---- */

static void count_busy(struct gate *g, int64_t ns)
{
	atomic_fetch_add(&session_row()->busy_ns[g->device->index], (uint64_t)ns);
}

static void charge_time(struct gate *g, unsigned turn, int64_t ns)
{
	if (turn == OWN_TURN)
		atomic_fetch_sub(&g->device->request->credit, ns);
	count_busy(g, ns);
}

static bool turn_over(struct gate *g, unsigned turn, int64_t now)
{
	bool there = arbiter_there(g->device, now);

	if (turn == OWN_TURN)
		return there || own_credit(g->device, now) <= 0;
	return !there || atomic_load(&own_decision(g)->turn) != turn;
}

/* Sleeps until this process may launch; false if the gate was switched off meanwhile. */
static bool take_turn(struct gate *g, unsigned *turn)
{
	struct request *mine = own_request(g);
	bool ok = false;

	while (!ok && atomic_load(&g->on) && !atomic_load(&g->refusal)) {
		int64_t now = now_ns();
		unsigned seen = atomic_load(&own_decision(g)->turn);
		bool there = arbiter_there(g->device, now);
		if (seen && !(seen & 1))
			atomic_store(&mine->released, seen - 1); /* it may have been given and asked back while we slept */
		atomic_store(&mine->wants, SAYS_WANTS);
		atomic_fetch_add(&mine->beat, 1);
		*turn = there ? seen : OWN_TURN;
		ok = there ? (seen & 1) && seen != atomic_load(&mine->released) : own_credit(g->device, now) >= TURN_NS;
		if (!ok)
			futex_wait(&own_decision(g)->turn, seen, 2 * MS);
	}
	atomic_store(&mine->wants, SAYS_NOTHING);
	return ok;
}

/* Sleeps for a moment, or until the turn is asked back. */
static void rest_in_turn(struct gate *g, unsigned turn, int64_t ns)
{
	if (turn == OWN_TURN)
		sleep_ns(ns);
	else
		futex_wait(&own_decision(g)->turn, turn, ns);
}

/*
 * Opens the gate until the turn is over or not used. Returns the time up to which it was charged, and in *unused how long
 * it had nothing to run. This thread may not be scheduled for long: it leaves out only time in which it saw that nothing
 * ran.
 */
static int64_t hold_turn(struct gate *g, unsigned turn, int64_t *unused)
{
	uint64_t seen = atomic_load(&g->launches), launches;
	int64_t taken = now_ns(), begin = taken, idle = begin, charged, now, entered;

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
	*unused = begin - taken;
	for (;;) {
		bool waited = turn != OWN_TURN && atomic_load(&g->device->decision->waited);
		rest_in_turn(g, turn, waited ? WAITED_TICK_NS : TICK_NS);
		now = now_ns();
		charge_time(g, turn, now - charged);
		charged = now;
		atomic_fetch_add(&own_request(g)->beat, 1);
		launches = atomic_load(&g->launches);
		if (launches != seen || atomic_load(&g->inside) || !streams_idle(g))
			idle = 0;
		else if (!idle)
			idle = now;
		seen = launches;
		step_look(&g->steps, now, waited_so_far(g));
		say_steps(g);
		if (!atomic_load(&g->on) || turn_over(g, turn, now))
			return charged;
		if (idle && now - idle > (waited ? WAITED_LINGER_NS : LINGER_NS)) {
			charge_time(g, turn, idle - now); /* the pause is not charged */
			*unused += now - idle;
			return charged;
		}
	}
}

/* No launch may be on its way and none in flight when the turn ends: the next process shall have the card alone. */
static void drain_turn(struct gate *g, unsigned turn, int64_t charged)
{
	int64_t now;
	bool idle;

	atomic_store(&g->closing_since, charged);
	atomic_store(&g->trickled, charged);
	set_state(g, GATE_CLOSING);
	do {
		bool closed = !atomic_load(&g->inside);
		idle = closed && streams_idle(g) && !atomic_load(&g->inside);
		if (!idle && turn != OWN_TURN)
			atomic_store(&own_request(g)->wants, closed && streams_ending(g, ENDING_NS) ? SAYS_ENDING : SAYS_NOTHING);
		if (!idle)
			sleep_ns(MS / 50);
		now = now_ns();
		charge_time(g, turn, now - charged);
		charged = now;
		atomic_fetch_add(&own_request(g)->beat, 1);
	} while (!idle);
	if (turn != OWN_TURN)
		atomic_store(&own_request(g)->wants, SAYS_NOTHING);
	set_state(g, GATE_CLOSED);
}

static void give_back(struct gate *g, unsigned turn, int64_t unused)
{
	if (turn == OWN_TURN)
		return;
	atomic_store(&own_request(g)->unused_us, (unsigned)(unused / 1000));
	atomic_store(&own_request(g)->released, turn);
}

/* ---- in space ---- */

/*
 * Counts the time in which something is in flight, as the part of the card that the process has meanwhile. This thread may
 * not be scheduled for long: what was in flight when it looked last is taken to have been so until it looks again.
 */
static void count_use(struct gate *g)
{
	int64_t now = now_ns(), counted = atomic_exchange(&g->entered, 0), idle = 0;

	set_state(g, GATE_OPEN);
	if (!counted)
		counted = now;
	while (atomic_load(&g->space) && (!idle || counted - idle < LINGER_NS)) {
		uint64_t launches;
		sleep_ns(TICK_NS);
		now = now_ns();
		if (!idle)
			count_busy(g, (now - counted) * atomic_load(&g->device->share) / 10000);
		counted = now;
		launches = atomic_load(&g->launches);
		if (launches != g->counted || atomic_load(&g->inside) || !streams_idle(g))
			idle = 0;
		else if (!idle)
			idle = now;
		g->counted = launches;
	}
	set_state(g, GATE_CLOSED);
	if (atomic_load(&g->launches) != g->counted || atomic_load(&g->inside))
		atomic_store(&g->want, 1);
}

static void *track(void *arg)
{
	struct gate *g = arg;
	int64_t unused;
	unsigned turn;

	prctl(PR_SET_NAME, "elastic-turns");
	prctl(PR_SET_TIMERSLACK, 1000UL);
	capture_relax_thread();
	for (;;) {
		if (!atomic_exchange(&g->want, 0)) {
			futex_wait(&g->want, 0, 1000 * MS);
			continue;
		}
		if (atomic_load(&g->space)) {
			count_use(g);
			continue;
		}
		if (!take_turn(g, &turn)) {
			set_state(g, GATE_CLOSED); /* wakes the launches that wait: the gate is off, or refuses them */
			continue;
		}
		drain_turn(g, turn, hold_turn(g, turn, &unused));
		give_back(g, turn, unused);
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

/*
 * Asks for the turn and sleeps for a while, or until the gate may be open. The arbiter's word wakes this thread and the
 * one that opens the gate at once: this one then waits a moment for the other.
 */
static void sleep_at_gate(struct gate *g, unsigned state)
{
	_Atomic unsigned *turn = &own_decision(g)->turn;
	unsigned seen = atomic_load(turn);
	int64_t woken;

	if (state == GATE_CLOSED && arbiter_there(g->device, now_ns()))
		atomic_store(&own_request(g)->wants, SAYS_WANTS); /* the other thread may take a moment to wake up */
	else
		seen = 1;
	if (!atomic_exchange(&g->want, 1))
		futex_wake(&g->want);
	if (seen & 1) {
		futex_wait(&g->state, state, 10 * MS);
		return;
	}
	futex_wait(turn, seen, 2 * MS);
	for (woken = now_ns(); atomic_load(turn) != seen && atomic_load(&g->state) == state && now_ns() - woken < WAKE_NS;)
		sched_yield();
}

static void start_tracking(struct gate *g)
{
	if (!atomic_load(&g->refusal) && !atomic_exchange(&g->tracked, true) && !thread_start(track, g)) {
		log_error("no thread for the turns on card %s", g->device->uuid);
		atomic_store(&g->tracked, false);
	}
}

static int wait_for_turn(struct gate *g, int pass)
{
	unsigned state;

	start_tracking(g);
	for (;;) {
		if (atomic_load(&g->refusal))
			return pass | PASS_REFUSED;
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
		bool stays = memory_call_stays(pass);
		if (!stays)
			memory_call_leave(pass); /* a swap must not wait for us */
		int64_t since = now_ns();
		sleep_at_gate(g, state);
		atomic_fetch_add(&g->waited_ns, (uint64_t)(now_ns() - since));
		if (!stays)
			pass = memory_call_enter();
	}
}

/* The turn was asked back, and the thread that closes the gate has not woken up yet: a launch now would be one too many. */
static void see_gate_close(struct gate *g)
{
	int64_t since = now_ns(), now = since;

	while (atomic_load(&g->state) == GATE_OPEN && arbiter_there(g->device, now) && !(atomic_load(&own_decision(g)->turn) & 1) && now - since < WAKE_NS) {
		sched_yield();
		now = now_ns();
	}
}

/* A quick container is back, or expected back, and this one runs on time that it has lent. */
static void make_way(struct gate *g, CUstream stream)
{
	struct decision_file *d = g->device->decision;
	int64_t until = atomic_load_explicit(&d->hold_until, memory_order_relaxed), hold, now;

	if (!until)
		return;
	hold = (int64_t)atomic_load_explicit(&d->hold_us, memory_order_relaxed) * 1000;
	if (hold > HOLD_MOST_NS)
		hold = HOLD_MOST_NS;
	now = now_ns();
	if (now < until - hold || now >= until)
		return;
	see_gate_close(g);
	stream_hold(stream, until, &g->state, GATE_OPEN);
}

int launch_enter(struct device *d, CUstream stream)
{
	int pass = memory_call_enter();
	struct gate *g = d ? atomic_load_explicit(&d->gate, memory_order_acquire) : NULL;
	int64_t backlog;

	if (!g)
		return d ? pass | PASS_REFUSED : pass;
	if (!atomic_load_explicit(&g->on, memory_order_relaxed) || stream_capturing(stream))
		return pass;
	backlog = d->decision ? (int64_t)atomic_load_explicit(&d->decision->backlog_us, memory_order_relaxed) * 1000 : 0;
	if (backlog && !atomic_load_explicit(&g->space, memory_order_relaxed)) {
		stream_shorten(stream, backlog, &g->state, GATE_OPEN);
		make_way(g, stream);
	}
	atomic_fetch_add(&g->inside, 1);
	if (atomic_load(&g->state) == GATE_OPEN)
		return pass | PASS_TURN;
	if (atomic_load(&g->space) && !atomic_load(&g->refusal)) {
		int64_t first = 0;
		atomic_compare_exchange_strong(&g->entered, &first, now_ns());
		start_tracking(g);
		if (!atomic_exchange(&g->want, 1))
			futex_wake(&g->want);
		return pass | PASS_TURN;
	}
	atomic_fetch_sub(&g->inside, 1);
	return wait_for_turn(g, pass);
}

void launch_leave(struct device *d, CUstream stream, int pass)
{
	if (pass & PASS_TURN) {
		struct gate *g = atomic_load_explicit(&d->gate, memory_order_acquire);
		atomic_store_explicit(&g->launches, atomic_load_explicit(&g->launches, memory_order_relaxed) + 1, memory_order_relaxed);
		if (atomic_load_explicit(&g->space, memory_order_relaxed))
			stream_counted(g, stream);
		else
			stream_launched(g, stream);
		if (!steps_begun(&g->steps))
			step_begin(&g->steps, now_ns(), waited_so_far(g));
		atomic_fetch_sub(&g->inside, 1);
	}
	memory_call_leave(pass);
}

/* ---- the gate of a card ---- */

/* A row may have been another process's: what that one had, wanted and was asked for is over. */
static void clear_row(struct gate *g)
{
	struct request *r = own_request(g);
	struct memory_request *m = &g->device->request->memory[g->row];

	atomic_store(&r->wants, 0);
	atomic_fetch_and(&g->device->request->short_steps[g->row / 64], ~((uint64_t)1 << g->row % 64));
	atomic_store(&r->released, (atomic_load(&own_decision(g)->turn) - 1) | 1);
	atomic_store(&m->resident, 0);
	atomic_store(&m->missing, 0);
	atomic_store(&m->runnable, 1);
	atomic_store(&m->moved, atomic_load(&own_decision(g)->eviction));
}

static struct gate *make_gate(struct device *d)
{
	struct gate *g = calloc(1, sizeof *g), *none = NULL;

	if (!g)
		return NULL;
	g->device = d;
	g->row = atomic_load(&session.process);
	if (d->request && g->row < MAX_ROWS) {
		atomic_store(&d->request->version, TURNS_VERSION);
		clear_row(g);
	}
	if (!atomic_compare_exchange_strong(&d->gate, &none, g)) {
		free(g);
		return none;
	}
	return g;
}

/* What nothing can hold to its share gets no launches. */
static const char *refusal(struct gate *g)
{
	if (!g->device->request)
		return "its files for turns cannot be used";
	if (g->row >= MAX_ROWS)
		return "this container has more than 256 processes on it";
	if (atomic_load(&g->device->space) && !g->device->mps)
		return "it is shared in space, and this process has not found its MPS daemon";
	if (atomic_load(&g->device->decision->refused) == REFUSED_CONTAINERS)
		return "more than 64 containers are on it";
	return NULL;
}

void compute_limit_reload(struct device *d)
{
	struct gate *g = atomic_load(&d->gate);
	const char *why;

	if (!g)
		g = make_gate(d);
	if (!g)
		return; /* without a gate there are no launches */
	why = refusal(g);
	if (why && atomic_exchange(&g->refusal, why) != why)
		log_error("card %s: %s: launches are refused", d->uuid, why);
	atomic_store(&g->refusal, why);
	if (!why)
		atomic_fetch_add(&own_request(g)->beat, 1);
	atomic_store(&g->space, atomic_load(&d->space));
	atomic_store(&g->on, why || atomic_load(&d->space) || atomic_load(&d->share) < 10000 || atomic_load(&d->decision->contended));
	if (why)
		set_state(g, GATE_CLOSED);
}

/* The process ends: what it had is free at once. */
void compute_limit_end(struct device *d)
{
	struct gate *g = atomic_load(&d->gate);

	if (g && d->request && g->row < MAX_ROWS)
		clear_row(g);
}

void compute_limit_fork_child(void)
{
	for (int i = 0; i < MAX_DEVICES; i++)
		atomic_store(&session.device[i].gate, NULL);
	streams_fork_child();
}
