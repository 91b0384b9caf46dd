/* The limits file, the container's file and the card's file by themselves. */
#include <sys/mman.h>
#include "check.h"

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

static void a_pid_used_again_is_another_process(void)
{
	struct container_file *r = container_here();
	int p = container_join(r);
	uint64_t other_start = atomic_load(&r->process[p].owner) ^ ((uint64_t)1 << 30);
	atomic_store(&r->process[7].owner, other_start); /* our pid, started at another time */
	atomic_store(&r->process[7].held[0], 50);
	EQUAL(container_used(r, 0), 50);
	EQUAL(container_reap(r), 1);
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
	container_reap(r);
	EQUAL(container_used(r, 0), 0);
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

static void another_version_is_refused(void)
{
	char why[512];
	struct container_file *r = container_here();
	atomic_store(&r->version, 12345);
	CHECK(!container_open(path_container(), why, sizeof why));
	CHECK(strstr(why, "another version"));
}

/* ---- the card's file: a simulated card ---- */

struct player { unsigned share; bool lend; int64_t kernel; bool idle; int slot; int64_t ran; };

static struct card *card_here(void)
{
	return mmap(NULL, sizeof(struct card), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* The loop of compute_limit.c in simulated time: the player with the turn runs kernels end to end; the others ask every 100 us. */
static void simulate(struct card *c, struct player *p, int n, int64_t end)
{
	int64_t now = 1, wait;

	for (int i = 0; i < n; i++) {
		char name[16];
		snprintf(name, sizeof name, "c%d", i);
		p[i].slot = card_slot_take(c, (unsigned)card_tenant(c, name, p[i].share, p[i].lend, now), (uint64_t)i + 1, now);
		CHECK(p[i].slot >= 0);
	}
	while (now < end) {
		int runner = -1;
		for (int i = 0; i < n; i++)
			if (!p[i].idle && card_take_turn(c, p[i].slot, now, &wait) && runner < 0)
				runner = i;
		if (runner < 0) {
			now += MS / 10;
			continue;
		}
		int64_t begin = now;
		unsigned tenant = atomic_load(&c->slot[p[runner].slot].tenant);
		do {
			now += p[runner].kernel;
			card_charge(c, tenant, p[runner].kernel);
			card_renew_turn(c, now);
			p[runner].ran += p[runner].kernel;
			for (int i = 0; i < n; i++)
				if (i != runner && !p[i].idle)
					card_take_turn(c, p[i].slot, now, &wait);
		} while (!card_should_yield(c, p[runner].slot, now, now - begin) && now < end);
		card_pass_turn(c, p[runner].slot, now);
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
#define SECOND (1000 * MS)

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
	struct card *c = card_here();
	simulate(c, p, 2, 10 * SECOND);
	NEAR(p[0].ran, 10 * SECOND, 0.02);
	struct player q[] = {{.share = 3000, .lend = true, .kernel = MS}, {.share = 7000, .kernel = MS}};
	simulate(card_here(), q, 2, 20 * SECOND);
	NEAR(q[0].ran, 6 * SECOND, 0.03);
	NEAR(q[1].ran, 14 * SECOND, 0.03);
}

static void a_process_that_dies_loses_the_turn(void)
{
	struct card *c = card_here();
	int64_t wait;
	int a = card_slot_take(c, (unsigned)card_tenant(c, "a", 5000, false, 1), 1, 1);
	int b = card_slot_take(c, (unsigned)card_tenant(c, "b", 5000, false, 1), 2, 1);
	CHECK(card_take_turn(c, a, 1, &wait));
	CHECK(!card_take_turn(c, b, 2, &wait));
	CHECK(!card_take_turn(c, b, LEASE_NS, &wait));
	CHECK(card_take_turn(c, b, LEASE_NS + 2, &wait));
	CHECK(card_should_yield(c, a, LEASE_NS + 3, 0));
	EQUAL(card_pass_turn(c, a, LEASE_NS + 3), -1);
	CHECK(card_has_turn(c, b));
}

static void a_dead_waiter_is_not_waited_for(void)
{
	struct card *c = card_here();
	int64_t wait, now = 1;
	int a = card_slot_take(c, (unsigned)card_tenant(c, "a", 5000, false, 1), 1, 1);
	int b = card_slot_take(c, (unsigned)card_tenant(c, "b", 5000, false, 1), 2, 1);
	CHECK(card_take_turn(c, a, now, &wait));
	CHECK(!card_take_turn(c, b, now, &wait)); /* asks, and dies */
	now += 20 * MS;
	EQUAL(card_pass_turn(c, a, now), b);
	now += ACCEPT_NS + MS;
	CHECK(card_take_turn(c, a, now, &wait));
}

static void slots_and_tenants_come_free(void)
{
	struct card *c = card_here();
	int64_t now = 1;
	for (int i = 0; i < MAX_SLOTS; i++)
		EQUAL(card_slot_take(c, 0, (uint64_t)i + 1, now), i);
	EQUAL(card_slot_take(c, 0, 999, now + SLOT_NS - 1), -1);
	card_slot_renew(c, 0, now + MS);
	EQUAL(card_slot_take(c, 0, 999, now + SLOT_NS), 1);
	CHECK(card_contended(c, 5, now + 2 * MS) == false);
	EQUAL(card_tenant(c, "x", 100, false, now), 0);
	EQUAL(card_tenant(c, "x", 100, false, now), 0);
	EQUAL(card_tenant(c, "y", 100, false, now), 1);
	CHECK(card_contended(c, 0, now + MS));
	CHECK(!card_contended(c, 0, now + TENANT_NS));
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

MAIN(T(limits_are_read), T(limits_not_understood_are_refused), T(a_card_not_named_grants_nothing), T(charges_stop_at_the_limit),
	T(a_killed_process_gives_back), T(a_pid_used_again_is_another_process), T(racing_processes_never_pass_the_limit),
	T(what_fits_is_not_refused_because_others_try), T(another_version_is_refused), T(shares_hold_alone), T(shares_hold_side_by_side),
	T(shares_beyond_the_card_are_proportional), T(lent_time_is_used_and_taken_back), T(a_process_that_dies_loses_the_turn),
	T(a_dead_waiter_is_not_waited_for), T(slots_and_tenants_come_free), T(time_at_high_clocks_costs_what_it_gains))
