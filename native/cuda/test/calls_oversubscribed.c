/* Processes that share memory on a card that is lent to more than it has, against the tests' driver. */
#include "processes.h"
#include "../peer_socket.h"

#define OVERSUBSCRIBED "oversubscribe on\nquantum-ms 50\n"
#define LIMIT_1G "device * memory 1073741824"

/* So many times its control thread has looked whether to come back; it does after each answer. */
static void looked(struct process p, int times)
{
	for (int i = 0; i < times; i++)
		CHECK(says(p, "stats", "\"ok\":true"));
}

/* A call waits for the memory, and another process of the container, too; the card has enough free, and nobody else wants it. */
static void what_the_agent_moved_out_stays_there(void)
{
	CUdeviceptr p, q;

	check_limits(OVERSUBSCRIBED, LIMIT_1G);
	a = start(check_root);
	b = start(check_root);
	p = alloc(a, 16 * MiB);
	q = open_in(b, name(a, p));
	OK(a, DO_SET, p, 16 * MiB, 3);
	CHECK(says(a, "out", "\"ok\":true") && says(b, "out", "\"ok\":true"));
	TELL(b, DO_WRITE_ON, q, 4096);
	UNTIL(says(b, "stats", "\"wanted\":true"));
	TELL(a, DO_WRITE_ON, p + 4096, 4096);
	UNTIL(says(a, "stats", "\"wanted\":true"));
	looked(a, 40);
	CHECK(TELL(a, DO_STATE).a);
	EQUAL(card(a), 2 * CONTEXT);
	CHECK(says(a, "in", "\"ok\":true") && says(b, "in", "\"ok\":true"));
	back(a);
	back(b);
	CHECK(TELL(a, DO_WRITTEN).c && TELL(b, DO_WRITTEN).c);
	EQUAL(TELL(a, DO_GET, p + 8 * MiB).b, 3);
}

/* Moved out for a neighbour, it comes back by itself as before: also when only the other process wants it. */
static void who_shares_it_brings_it_back(void)
{
	struct peer_request q = {.version = PEER_VERSION, .ask = PEER_GIVE, .id = 1, .secret = 77, .wanted = 1};
	struct peer_answer answer;
	CUdeviceptr p, shared;

	check_limits(OVERSUBSCRIBED, LIMIT_1G);
	a = start(check_root);
	b = start(check_root);
	p = alloc(a, 16 * MiB);
	shared = open_in(b, name(a, p));
	OK(a, DO_OUT);
	for (int i = 0; i < 20; i++) { /* by a name that is none of its own */
		CHECK(peer_exchange(a.pid, q, &answer, NULL));
		EQUAL(answer.says, PEER_UNKNOWN);
		looked(a, 1);
	}
	CHECK(TELL(a, DO_STATE).a);
	TELL(b, DO_WRITE_ON, shared, 4096);
	back(a);
	back(b);
	CHECK(TELL(b, DO_WRITTEN).c);
}

/* A container of two processes that share 300 MiB, and one of 300 MiB, on a card of 512 beside the contexts. */
static void who_shares_memory_makes_way_for_a_neighbour(void)
{
	char root[300];
	struct process other;
	CUdeviceptr p, q, theirs;
	struct word w;

	setenv("STUB_MEMORY", "738197504", 1);
	check_limits(OVERSUBSCRIBED, LIMIT_1G);
	snprintf(root, sizeof root, "%s/other", check_root);
	check_share(root, "other");
	check_write("/other/etc/elastic-gpu/limits", "elastic-gpu 1\ncontainer other\ncontrol any\n" OVERSUBSCRIBED LIMIT_1G "\n");
	check_arbiter();
	a = start(check_root);
	b = start(check_root);
	other = start(root);
	p = alloc(a, 300 * MiB);
	q = open_in(b, name(a, p));
	OK(b, DO_SET, q, 300 * MiB, 5);
	UNTIL((w = TELL(other, DO_ALLOC, 300 * MiB)).c == 0); /* waits until they have left, when the arbiter knows both */
	theirs = w.a;
	for (unsigned i = 0; i < 6; i++) {
		w = TELL(i % 2 ? b : a, DO_GET, i % 2 ? q : p);
		CHECK(!w.c && w.b == 5 + i / 2);
		OK(other, DO_SET, theirs, 300 * MiB, 80 + i);
		if (i % 2)
			OK(b, DO_SET, q, 300 * MiB, 6 + i / 2);
		w = TELL(other, DO_GET, theirs);
		CHECK(!w.c && w.b == 80 + i);
	}
	stop(other);
}

MAIN(T(what_the_agent_moved_out_stays_there), T(who_shares_it_brings_it_back), T(who_shares_memory_makes_way_for_a_neighbour))
