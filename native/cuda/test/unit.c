/* The limits file and the container's file by themselves. */
#include <sys/mman.h>
#include "check.h"
#include "../making_way.h"

/* ---- limits ---- */

static bool parses(const char *text, struct limits *l)
{
	char why[256];
	return limits_parse(text, l, why, sizeof why);
}

static void limits_are_read(void)
{
	struct limits l;
	CHECK(parses("elastic-gpu 1\ncontainer a/b\n# note\n\nswap on\nquantum-ms 500\ndevice GPU-1 memory 1000 compute 12.5 lend on\ndevice * memory 7\n", &l));
	CHECK(!strcmp(l.container, "a/b") && l.swap && !l.oversubscribe && !l.control_any);
	EQUAL(l.quantum_ms, 500);
	EQUAL(limits_for(&l, "GPU-1")->memory, 1000);
	EQUAL(limits_for(&l, "GPU-1")->compute, 1250);
	CHECK(limits_for(&l, "GPU-1")->lend);
	EQUAL(limits_for(&l, "GPU-2")->memory, 7);
	EQUAL(limits_for(&l, "GPU-2")->compute, 10000);
	EQUAL(limits_for(&l, "GPU-1")->sharing, SHARING_TIME);
	CHECK(parses("elastic-gpu 1\ncontainer a\nswap on\ndevice GPU-1 memory 5 compute 40 sharing space\n", &l));
	EQUAL(limits_for(&l, "GPU-1")->sharing, SHARING_SPACE);
	EQUAL(limits_for(&l, "GPU-1")->latency, LATENCY_AUTO);
	CHECK(parses("elastic-gpu 1\ncontainer a\ndevice GPU-1 memory 5 latency low\ndevice GPU-2 memory 5 latency throughput\ndevice GPU-3 memory 5 latency auto\n", &l));
	EQUAL(limits_for(&l, "GPU-1")->latency, LATENCY_LOW);
	EQUAL(limits_for(&l, "GPU-2")->latency, LATENCY_THROUGHPUT);
	EQUAL(limits_for(&l, "GPU-3")->latency, LATENCY_AUTO);
}

static void limits_not_understood_are_refused(void)
{
	static const char *const bad[] = {
		"", "elastic-gpu 2\ncontainer a\n", "container a\n", "elastic-gpu 1\n", "elastic-gpu 1\ncontainer\n",
		"elastic-gpu 1\ncontainer a\nswap maybe\n", "elastic-gpu 1\ncontainer a\nfuture 1\n",
		"elastic-gpu 1\ncontainer a\ndevice\n", "elastic-gpu 1\ncontainer a\ndevice * memory -1\n",
		"elastic-gpu 1\ncontainer a\ndevice * memory 1x\n", "elastic-gpu 1\ncontainer a\ndevice * compute 0\n",
		"elastic-gpu 1\ncontainer a\ndevice * compute 101\n", "elastic-gpu 1\ncontainer a\ndevice * compute 5.x\n",
		"elastic-gpu 1\ncontainer a\ndevice * memory 99999999999999999999999\n", "elastic-gpu 1\ncontainer a\nquantum-ms 0\n",
		"elastic-gpu 1\ncontainer a\ndevice * latency none\n", "elastic-gpu 1\ncontainer a\ndevice * sharing both\n", "elastic-gpu 1\ncontainer a\noversubscribe on\ndevice * sharing space\n",
		"elastic-gpu 1\ncontainer a\ndevice GPU-1 sharing space\ndevice GPU-2 sharing space\n",
	};
	struct limits l;
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
		if (parses(bad[i], &l)) {
			fprintf(stderr, "accepted: %s\n", bad[i]);
			_exit(1);
		}
}

static void a_card_not_named_grants_nothing(void)
{
	struct limits l;
	CHECK(parses("elastic-gpu 1\ncontainer a\ndevice GPU-1 memory 5\n", &l));
	EQUAL(limits_for(&l, "GPU-2")->memory, 0);
}

/* ---- the container's file ---- */

static struct container_file *container_here(void)
{
	char why[512];
	struct container_file *r = container_open(path_container(), why, sizeof why);
	CHECK(r);
	return r;
}

static void charges_stop_at_the_limit(void)
{
	struct container_file *r = container_here();
	int p = container_join(r), d = container_device(r, "GPU-1");
	CHECK(container_charge(r, p, d, 60, 100));
	CHECK(!container_charge(r, p, d, 41, 100));
	CHECK(container_charge(r, p, d, 40, 100));
	CHECK(!container_charge(r, p, d, 1, 100));
	CHECK(!container_charge(r, p, d, UINT64_MAX, 100)); /* no overflow */
	container_refund(r, p, d, 1000); /* no underflow */
	EQUAL(container_used(r, d), 0);
	EQUAL(container_device(r, "GPU-2"), 1);
	EQUAL(container_device(r, "GPU-1"), 0);
}

static void a_killed_process_gives_back(void)
{
	struct container_file *r = container_here();
	int p = container_join(r), ready[2];
	pid_t pid;
	char c;

	CHECK(pipe(ready) == 0);
	CHILD(pid, { int q = container_join(r); CHECK(container_charge(r, q, 0, 90, 100)); CHECK(write(ready[1], "x", 1) == 1); pause(); });
	CHECK(read(ready[0], &c, 1) == 1);
	CHECK(!container_charge(r, p, 0, 20, 100));
	CHECK(kill(pid, SIGKILL) == 0);
	siginfo_t info;
	CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0); /* dead, and still a zombie */
	CHECK(container_charge(r, p, 0, 100, 100));
	EQUAL(container_used(r, 0), 100);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static uint64_t word_of(struct container_file *r, int row) { return atomic_load(&r->process[row].owner); }

/* What others have of a process counts once, in its row or in theirs. */
static void imports_count_when_the_other_row_is_cleared(void)
{
	struct container_file *r = container_here();
	int p = container_join(r), row, more, ready[2];
	uint64_t other, another;
	pid_t pid;

	CHECK(pipe(ready) == 0);
	CHILD(pid, {
		int q = container_join(r);
		uint64_t me = word_of(r, q);
		CHECK(container_charge(r, q, 0, 60, 100) && write(ready[1], &me, sizeof me) == (ssize_t)sizeof me);
		pause();
	});
	CHECK(read(ready[0], &other, sizeof other) == (ssize_t)sizeof other);
	EQUAL(container_word(r, pid), other);
	row = container_import(r, p, other, 0, 30);
	CHECK(row >= LOW_PROCESSES && container_import(r, p, other, 1, 5) == row);
	EQUAL(container_used(r, 0), 60);
	CHECK(!container_import_left(r, row));
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	CHECK(container_import_left(r, row));
	CHECK(!container_charge(r, p, 0, 71, 100)); /* this clears the dead one's row */
	EQUAL(container_used(r, 0), 30);
	EQUAL(container_used(r, 1), 5);
	EQUAL(container_import(r, p, other, 0, 9), -1); /* what it had may be another's by now */
	EQUAL(container_used(r, 0), 30);
	container_import_end(r, row, 0, 30);
	CHECK(word_of(r, row));
	container_import_end(r, row, 1, 5);
	EQUAL(word_of(r, row), 0);
	/* this process is one that became another: what it has of others is no more, what others have of it counts */
	another = word_of(r, p);
	more = container_import(r, p, another, 0, 8);
	CHECK(more >= 0);
	atomic_store(&r->process[more].owner, (uint64_t)getppid() | WAITING); /* as if another had it */
	container_forget_own(r);
	EQUAL(word_of(r, p), 0);
	EQUAL(container_used(r, 0), 8);
}

static void a_pid_used_again_is_another_process(void)
{
	struct container_file *r = container_here();
	int p = container_join(r);
	uint64_t other_start = atomic_load(&r->process[p].owner) ^ ((uint64_t)1 << 30);
	atomic_store(&r->process[7].owner, other_start); /* our pid, started at another time */
	atomic_store(&r->process[7].held[0], 50);
	EQUAL(container_used(r, 0), 50);
	EQUAL(container_reap(r), 1); /* at once: nobody waits for it */
	EQUAL(container_used(r, 0), 0);
}

static void racing_processes_never_pass_the_limit(void)
{
	struct container_file *r = container_here();
	enum { N = 8, LIMIT = 1000 };
	_Atomic int *over = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	_Atomic uint64_t *real = (void *)(over + 16);
	pid_t pids[N];

	for (int i = 0; i < N; i++)
		CHILD(pids[i], {
			int p = container_join(r);
			for (int n = 0; n < 500; n++) {
				uint64_t want = (uint64_t)(n * 37 % 300 + 1);
				if (!container_charge(r, p, 0, want, LIMIT))
					continue;
				if (atomic_fetch_add(real, want) + want > LIMIT)
					atomic_fetch_add(over, 1);
				atomic_fetch_sub(real, want);
				container_refund(r, p, 0, want);
			}
		});
	for (int i = 0; i < N; i++)
		check_exit(pids[i]);
	EQUAL(atomic_load(over), 0);
	UNTIL((container_reap(r), container_used(r, 0) == 0));
}

static void what_fits_is_not_refused_because_others_try(void)
{
	struct container_file *r = container_here();
	int p = container_join(r), q = container_join(r);
	pid_t pid;

	CHECK(container_charge(r, p, 0, 4, 10));
	CHILD(pid, for (int i = 0; i < 20000; i++) CHECK(!container_charge(r, q, 0, 8, 10)));
	for (int i = 0; i < 1000; i++) {
		CHECK(container_charge(r, p, 0, 6, 10));
		container_refund(r, p, 0, 6);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* A row above the low ones gets no compute: hundreds of short processes, one after the other, must not end up there. */
static void rows_of_the_dead_are_used_before_high_ones(void)
{
	struct container_file *r = container_here();
	uint64_t dead;
	int p = container_join(r);

	dead = atomic_load(&r->process[p].owner) ^ ((uint64_t)1 << 30); /* our pid, started at another time */
	for (int i = 1; i < LOW_PROCESSES; i++)
		atomic_store(&r->process[i].owner, dead);
	EQUAL(container_join(r), 1);
	for (int i = 1; i < LOW_PROCESSES; i++)
		atomic_store(&r->process[i].owner, atomic_load(&r->process[p].owner));
	EQUAL(container_join(r), LOW_PROCESSES);
}

static void another_version_is_refused(void)
{
	char why[512];
	struct container_file *r = container_here();
	atomic_store(&r->version, 12345);
	CHECK(!container_open(path_container(), why, sizeof why));
	CHECK(strstr(why, "another version"));
}

/* ---- steps ---- */

static void steps_are_short_when_they_are_waited_for(void)
{
	struct steps s = {0};
	int64_t now = MS;

	for (int i = 0; i < SHORT_STEPS; i++, now += 10 * MS) {
		CHECK(!steps_short(&s));
		step_begin(&s, now, 0);
		step_begin(&s, now + MS, 0); /* the first launch counts */
		step_end(&s, now + STEP_NS, 0);
		step_end(&s, now + 9 * MS, 0); /* there is nothing to wait for */
	}
	CHECK(steps_short(&s));
	step_begin(&s, now, 5 * MS);
	step_end(&s, now + 40 * MS, 43 * MS); /* it waited for the turn most of the time */
	CHECK(steps_short(&s));
	for (int i = 0; i < 2; i++, now += 100 * MS) { /* two long ones in a row, and it is no longer quick */
		step_begin(&s, now, 0);
		step_end(&s, now + STEP_NS + 1, 0);
	}
	CHECK(!steps_short(&s));
}

static void work_that_nobody_waits_for_is_no_step(void)
{
	struct steps s = {.score = SHORT_STEPS_MOST};

	step_begin(&s, MS, 0);
	step_look(&s, MS + LONG_STEP_NS, 0);
	CHECK(steps_short(&s));
	step_look(&s, MS + LONG_STEP_NS + 5 * MS, 5 * MS);
	CHECK(steps_short(&s));
	step_look(&s, MS + LONG_STEP_NS + 1, 0);
	CHECK(!steps_short(&s));
}

/* ---- rhythms ---- */

static int64_t pauses(struct rhythm *r, int64_t now, int n, int64_t pause, int64_t jitter)
{
	for (int i = 0; i < n; i++) {
		rhythm_rests(r, now);
		now += pause + (i % 2 ? jitter : -jitter);
		rhythm_returns(r, now);
		now += MS;
	}
	return now;
}

static void a_steady_rhythm_is_learnt(void)
{
	struct rhythm r = {0};
	struct window w;
	int64_t now = MS;

	CHECK(!rhythm_expects(&r, now, &w));
	now = pauses(&r, now, 4, 10 * MS, 0);
	rhythm_rests(&r, now);
	CHECK(!rhythm_expects(&r, now, &w)); /* so soon it may be chance */
	rhythm_returns(&r, now + 10 * MS);
	now = pauses(&r, now, 40, 10 * MS, MS / 20);
	CHECK(!rhythm_expects(&r, now, &w)); /* it does not rest */
	rhythm_rests(&r, now);
	CHECK(rhythm_expects(&r, now, &w));
	CHECK(w.from < now + 10 * MS && w.until > now + 10 * MS && w.until < now + 11 * MS);
	CHECK(!rhythm_expects(&r, w.until, &w)); /* it did not come */
	rhythm_rests(&r, 0); /* it was interrupted, and does not rest by itself */
	CHECK(!rhythm_expects(&r, now, &w));
}

static void no_rhythm_is_none(void)
{
	struct rhythm r = {0};
	struct window w;
	int64_t now = pauses(&r, MS, 100, 10 * MS, 4 * MS);

	rhythm_rests(&r, now);
	CHECK(!rhythm_expects(&r, now, &w));
	r = (struct rhythm){0};
	now = pauses(&r, now, 100, 2 * PAUSE_MOST, 0);
	rhythm_rests(&r, now);
	CHECK(!rhythm_expects(&r, now, &w));
}

/* Whatever the pauses are, the time in which one is expected is short, and one long rest is not remembered for long. */
static void a_window_is_short(void)
{
	static const int64_t pause[] = {1, 1000, MS / 3, 7 * MS, PAUSE_MOST};
	struct window w;

	for (unsigned i = 0; i < sizeof pause / sizeof *pause; i++) {
		struct rhythm r = {0};
		int64_t now = pauses(&r, MS, 100, pause[i], 0);
		now = pauses(&r, now, 1, PAUSE_MOST, 0);
		now = pauses(&r, now, 30, pause[i], 0);
		rhythm_rests(&r, now);
		CHECK(rhythm_expects(&r, now, &w));
		CHECK(w.from < w.until && w.until - w.from <= HOLD_MOST_NS);
		CHECK(w.until > now && w.until <= now + pause[i] + HOLD_MOST_NS);
	}
}

/* Whatever windows it is shown: a hostile neighbour chooses them. */
static void making_way_takes_a_part_of_the_time(void)
{
	struct making_way m = {0, MS};
	int64_t now = MS, waited = 0;
	uint64_t seed = 7;

	for (int i = 0; i < 100000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		int64_t until = now + (int64_t)(seed >> 40) % (3 * MS) - MS, ends = now + (int64_t)(seed >> 20) % (2 * MS);
		if (way_is_made(&m, (int64_t)(seed >> 30) % (5 * MS), until, now)) {
			int64_t to = ends < until ? ends : until; /* the lender may come sooner */
			CHECK(to - now <= WAY_SAVED_NS);
			way_was_made(&m, to - now);
			waited += to - now;
			now = to;
		}
		now += (int64_t)(seed >> 50);
		CHECK(waited <= (now - MS) / WAY_PART + WAY_SAVED_NS);
	}
	CHECK(waited > (now - MS) / WAY_PART / 2);
	CHECK(!way_is_made(&m, 5 * MS, now, now) && !way_is_made(&m, 5 * MS, now - 1, now));
	now += 1000 * MS;
	CHECK(way_is_made(&m, MS + 1, now + MS, now));
	CHECK(!way_is_made(&m, MS, now + MS, now)); /* it is not in the way */
	CHECK(!way_is_made(&m, 100 * MS, now + WAY_SAVED_NS + 1, now));
}

MAIN(T(a_steady_rhythm_is_learnt), T(no_rhythm_is_none), T(a_window_is_short), T(making_way_takes_a_part_of_the_time), T(limits_are_read), T(limits_not_understood_are_refused), T(steps_are_short_when_they_are_waited_for), T(work_that_nobody_waits_for_is_no_step), T(a_card_not_named_grants_nothing), T(charges_stop_at_the_limit),
	T(a_killed_process_gives_back), T(imports_count_when_the_other_row_is_cleared), T(a_pid_used_again_is_another_process), T(racing_processes_never_pass_the_limit),
	T(what_fits_is_not_refused_because_others_try), T(another_version_is_refused), T(rows_of_the_dead_are_used_before_high_ones))
