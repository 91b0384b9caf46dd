/* Memory that the processes of one container give each other goes out and comes back with all of them, against the tests' driver. */
#include "processes.h"
#include "../shared_imports.h"

static void what_two_processes_have_goes_and_comes(void)
{
	CUdeviceptr p, q;
	unsigned files[2];

	begin_two();
	p = alloc(a, 40 * MiB);
	q = open_in(b, name(a, p));
	TELL(a, DO_FILL, p, 40 * MiB, 3);
	CHECK(TELL(b, DO_FILLED, q, 40 * MiB, 3).c);
	EQUAL(counted(b), 2 * CONTEXT + 40 * MiB); /* once */
	EQUAL(card(b), 2 * CONTEXT + 40 * MiB);
	for (unsigned round = 0; round < 10; round++) {
		struct process first = round % 2 ? a : b, second = round % 2 ? b : a, in = round % 4 < 2 ? a : b, later = round % 4 < 2 ? b : a;
		OK(first, DO_AGENT_OUT);
		OK(second, DO_AGENT_OUT);
		EQUAL(card(a), 2 * CONTEXT);
		EQUAL(counted(a), 2 * CONTEXT + 40 * MiB);
		CHECK(TELL(b, DO_STATE).b && TELL(b, DO_HELD).a); /* it waits with it */
		OK(in, DO_IN);
		OK(later, DO_IN);
		back(a);
		back(b);
		EQUAL(card(a), 2 * CONTEXT + 40 * MiB);
		CHECK(TELL(b, DO_FILLED, q, 40 * MiB, 3 + round).c && TELL(a, DO_FILLED, p, 40 * MiB, 3 + round).c);
		TELL(round % 2 ? a : b, DO_FILL, round % 2 ? p : q, 40 * MiB, 4 + round);
		CHECK(TELL(round % 2 ? b : a, DO_FILLED, round % 2 ? q : p, 40 * MiB, 4 + round).c); /* the same memory still */
		unsigned now[2] = {(unsigned)TELL(a, DO_FILES).a, (unsigned)TELL(b, DO_FILES).a};
		if (!round)
			memcpy(files, now, sizeof now);
		EQUAL(now[0], files[0]);
		EQUAL(now[1], files[1]);
	}
	OK(b, DO_CLOSE, q);
	EQUAL(TELL(b, DO_CLOSE, q).c, CUDA_ERROR_INVALID_VALUE);
	OK(a, DO_FREE, p);
	EQUAL(card(a), 2 * CONTEXT);
	EQUAL(counted(a), 2 * CONTEXT);
	stop(b);
	stop(a);
}

/* More than one chunk, and pieces of a page that several allocations share. */
static void whatever_its_size(void)
{
	static const uint64_t sizes[] = {100, 70000, 3 * MiB, GiB + 6 * MiB};
	CUdeviceptr p[4], q[4];
	struct word w;

	check_limits("swap on\n", "device * memory 2147483648");
	a = start(check_root);
	b = start(check_root);
	for (unsigned i = 0; i < 4; i++) {
		p[i] = alloc(a, sizes[i]);
		TELL(a, DO_FILL, p[i], i < 2 ? 4 : 2 * MiB, i);
		TELL(a, DO_FILL, p[i] + sizes[i] / MiB * MiB - (i < 2 ? 0 : MiB), i < 2 ? 4 : MiB, 70 + i);
	}
	for (unsigned i = 0; i < 4; i++) {
		q[i] = open_in(b, name(a, p[i] + sizes[i] / 2)); /* as with the driver, it opens at the base */
		w = TELL(b, DO_RANGE, q[i] + sizes[i] / 2);
		CHECK(w.a == q[i] && w.b == sizes[i]);
	}
	for (int round = 0; round < 2; round++) {
		OK(a, DO_OUT);
		EQUAL(card(a), 2 * CONTEXT);
		OK(a, DO_IN);
		back(b);
		for (unsigned i = 0; i < 4; i++)
			CHECK(TELL(b, DO_FILLED, q[i] + sizes[i] / MiB * MiB - (i < 2 ? 0 : MiB), i < 2 ? 4 : MiB, 70 + i).c);
	}
	for (unsigned i = 0; i < 4; i++) {
		OK(b, DO_CLOSE, q[i]);
		OK(a, DO_FREE, p[i]);
	}
	EQUAL(card(a), 2 * CONTEXT);
}

static void a_handle_is_only_data(void)
{
	char root[300];
	CUipcMemHandle h, bad;
	CUdeviceptr p, q;
	struct process other;
	struct word w;

	begin_two();
	p = alloc(a, 4 * MiB);
	h = name(a, p);
	w = TELL(a, DO_NAME, p + MiB);
	CHECK(!memcmp(&w.h, &h, sizeof h)); /* programs compare them */
	EQUAL(TELL(a, DO_OPEN, .h = h).c, CUDA_ERROR_INVALID_CONTEXT); /* in the process that gave it */
	q = open_in(b, h);
	EQUAL(open_in(b, h), q); /* twice: the same, counted */
	OK(b, DO_CLOSE, q);
	for (unsigned i = 0; i < sizeof h; i++) { /* forged */
		bad = h;
		bad.reserved[i] = (char)(bad.reserved[i] ^ 0x41);
		w = TELL(b, DO_OPEN, .h = bad);
		if (!w.c) { /* it said nothing that counts, or another place in what is shared */
			CHECK(i >= offsetof(struct shared_name, offset));
			OK(b, DO_CLOSE, w.a);
		} else {
			CHECK(w.c == CUDA_ERROR_INVALID_HANDLE || w.c == CUDA_ERROR_INVALID_VALUE);
		}
	}
	bad = h;
	((struct shared_name *)(void *)&bad)->program = 1; /* of the other kind */
	EQUAL(TELL(b, DO_OPEN, .h = bad).c, CUDA_ERROR_INVALID_HANDLE);
	snprintf(root, sizeof root, "%s/other", check_root); /* another container */
	check_share(root, "other");
	check_write("/other/etc/elastic-gpu/limits", "elastic-gpu 1\ncontainer other\ncontrol any\nswap on\n" LIMITS_512 "\n");
	other = start(root);
	EQUAL(TELL(other, DO_OPEN, .h = h).c, CUDA_ERROR_INVALID_HANDLE);
	OK(b, DO_CLOSE, q);
	OK(a, DO_FREE, p);
	EQUAL(TELL(b, DO_OPEN, .h = h).c, CUDA_ERROR_INVALID_HANDLE); /* it is no more */
	p = alloc(a, 4 * MiB);
	CHECK(memcmp(&h, (CUipcMemHandle[]){name(a, p)}, sizeof h));
	EQUAL(TELL(b, DO_OPEN, .h = h).c, CUDA_ERROR_INVALID_HANDLE);
	h = name(a, p);
	stop(a);
	EQUAL(TELL(b, DO_OPEN, .h = h).c, CUDA_ERROR_INVALID_HANDLE); /* its process has ended */
	EQUAL(card(b), 2 * CONTEXT); /* the other container's, and this one's */
}

static void what_its_owner_frees_stays_for_the_other(void)
{
	CUdeviceptr p, q, small, in_b;

	begin_two();
	p = alloc(a, 8 * MiB);
	small = alloc(a, 1000);
	q = open_in(b, name(a, p));
	in_b = open_in(b, name(a, small));
	TELL(b, DO_FILL, q, 8 * MiB, 9);
	OK(a, DO_FREE, p);
	OK(a, DO_FREE, small);
	EQUAL(TELL(a, DO_FREE, p).c, CUDA_ERROR_INVALID_VALUE);
	EQUAL(TELL(a, DO_USED).c, 10 * MiB); /* it still pays */
	for (int round = 0; round < 2; round++) {
		OK(a, DO_OUT);
		EQUAL(card(a), 2 * CONTEXT);
		OK(a, DO_IN);
		back(b);
		CHECK(TELL(b, DO_FILLED, q, 8 * MiB, 9).c);
	}
	OK(b, DO_CLOSE, q);
	EQUAL(counted(b), 2 * CONTEXT + 2 * MiB);
	OK(b, DO_CLOSE, in_b);
	EQUAL(counted(b), 2 * CONTEXT);
	EQUAL(card(b), 2 * CONTEXT);
}

/* ---- the program's own virtual memory ---- */

static struct word imported(struct process from, struct process to, uint64_t handle)
{
	struct word w = TELL(from, DO_EXPORT, .b = handle);

	EQUAL(w.c, 0);
	snprintf(w.text, sizeof w.text, "/proc/%d/fd/%d", (int)from.pid, (int)w.a);
	w.order = DO_IMPORT;
	return tell(to, w);
}

/* What is in the descriptor, as a handle of 64 bytes. */
static void of_the_other_kind(struct process from, struct process to, uint64_t handle)
{
	struct word w = TELL(from, DO_EXPORT, .b = handle), open_it = {.order = DO_OPEN};
	struct shared_name n;
	char path[64];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)from.pid, (int)w.a);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && read(fd, &n, sizeof n) == (ssize_t)sizeof n && close(fd) == 0);
	for (n.program = 0; n.program < 2; n.program++) { /* as it is, and forged */
		memcpy(&open_it.h, &n, sizeof n);
		EQUAL(tell(to, open_it).c, CUDA_ERROR_INVALID_HANDLE);
	}
}

static void a_descriptor_of_memory_goes_and_comes(void)
{
	enum { N = 5 };
	uint64_t mine[N], its[N];
	CUdeviceptr p[N], q[N];
	struct word w;

	begin_two();
	for (unsigned i = 0; i < N; i++) { /* as PyTorch's expandable segments have it */
		mine[i] = TELL(a, DO_CREATE, 20 * MiB).b;
		p[i] = TELL(a, DO_MAP, 20 * MiB, mine[i]).a;
		w = imported(a, b, mine[i]);
		EQUAL(w.c, 0);
		its[i] = w.b;
		q[i] = TELL(b, DO_MAP, 20 * MiB, its[i]).a;
		TELL(a, DO_FILL, p[i], 20 * MiB, i);
	}
	EQUAL(counted(b), 2 * CONTEXT + N * 20 * MiB);
	of_the_other_kind(a, b, mine[0]);
	w = imported(a, b, mine[0]);
	CHECK(!w.c && w.b == its[0]);
	OK(b, DO_RELEASE, .b = its[0]);
	for (unsigned round = 0; round < 10; round++) {
		OK(round % 2 ? a : b, DO_AGENT_OUT);
		OK(round % 2 ? b : a, DO_AGENT_OUT);
		EQUAL(card(a), 2 * CONTEXT);
		OK(b, DO_IN);
		OK(a, DO_IN);
		back(b);
		for (unsigned i = 0; i < N; i++) {
			CHECK(TELL(b, DO_FILLED, q[i], 20 * MiB, i + round).c);
			TELL(b, DO_FILL, q[i], 20 * MiB, i + round + 1);
			CHECK(TELL(a, DO_FILLED, p[i], 20 * MiB, i + round + 1).c);
		}
	}
	/* the maker gives all of it back, and it stays, and moves, for the other; which may give it on */
	for (unsigned i = 0; i < N; i++) {
		OK(a, DO_UNMAP, p[i], 20 * MiB);
		OK(a, DO_RELEASE, .b = mine[i]);
	}
	EQUAL(TELL(a, DO_RELEASE, .b = mine[0]).c, CUDA_ERROR_INVALID_VALUE);
	EQUAL(counted(a), 2 * CONTEXT + N * 20 * MiB);
	w = imported(b, a, its[1]);
	CHECK(!w.c && w.b == mine[1]);
	p[1] = TELL(a, DO_MAP, 20 * MiB, mine[1]).a;
	OK(a, DO_OUT);
	EQUAL(card(a), 2 * CONTEXT);
	OK(a, DO_IN);
	back(b);
	CHECK(TELL(a, DO_FILLED, p[1], 20 * MiB, 11).c && TELL(b, DO_FILLED, q[1], 20 * MiB, 11).c);
	for (unsigned i = 0; i < N; i++) {
		OK(b, DO_RELEASE, .b = its[i]);
		EQUAL(counted(b), 2 * CONTEXT + (i > 1 ? N - i + 1 : N - i) * 20 * MiB);
		OK(b, DO_UNMAP, q[i], 20 * MiB);
	}
	EQUAL(counted(a), 2 * CONTEXT + 20 * MiB);
	OK(a, DO_UNMAP, p[1], 20 * MiB);
	OK(a, DO_RELEASE, .b = mine[1]);
	EQUAL(counted(a), 2 * CONTEXT);
	EQUAL(card(a), 2 * CONTEXT);
}

static void a_descriptor_that_is_none_of_ours(void)
{
	struct shared_name n = {.magic = SHARED_MAGIC, .pid = 1, .program = 1, .id = 1, .secret = 1};
	struct word w = {.order = DO_IMPORT};
	char path[300];
	int fd;

	begin_two();
	snprintf(path, sizeof path, "%s/plain", check_root);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && write(fd, &n, sizeof n) == (ssize_t)sizeof n);
	memcpy(w.text, path, sizeof w.text);
	EQUAL(tell(b, w).c, CUDA_ERROR_INVALID_VALUE); /* a file of anybody's: the driver's answer */
	fd = memfd_create("name", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(fd >= 0 && write(fd, &n, sizeof n) == (ssize_t)sizeof n);
	snprintf(w.text, sizeof w.text, "/proc/%d/fd/%d", (int)getpid(), fd);
	EQUAL(tell(b, w).c, CUDA_ERROR_INVALID_VALUE); /* it could be changed */
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	EQUAL(tell(b, w).c, CUDA_ERROR_INVALID_HANDLE); /* forged */
}

/* ---- moved in part, both ways, at once ---- */

static void others_are_held_back_only_for_what_they_have(void)
{
	CUdeviceptr p, q;

	begin_two();
	alloc(a, 32 * MiB);
	p = alloc(a, 32 * MiB);
	alloc(a, 32 * MiB);
	q = open_in(b, name(a, p));
	TELL(b, DO_FILL, q, 32 * MiB, 5);
	EQUAL(TELL(a, DO_OUT, 40 * MiB).a, 64 * MiB);
	CHECK(!TELL(b, DO_HELD).a && TELL(b, DO_FILLED, q, 32 * MiB, 5).c);
	EQUAL(TELL(a, DO_OUT, 10 * MiB).a, 32 * MiB); /* more is wanted: now they leave */
	CHECK(TELL(b, DO_HELD).a);
	EQUAL(card(a), 2 * CONTEXT);
	OK(a, DO_IN);
	back(b);
	CHECK(TELL(b, DO_FILLED, q, 32 * MiB, 5).c);
}

static void each_has_something_of_the_other(void)
{
	CUdeviceptr p, q, p_in_b, q_in_a;

	begin_two();
	p = alloc(a, 16 * MiB);
	q = alloc(b, 24 * MiB);
	p_in_b = open_in(b, name(a, p));
	q_in_a = open_in(a, name(b, q));
	TELL(a, DO_FILL, p, 16 * MiB, 1);
	TELL(b, DO_FILL, q, 24 * MiB, 2);
	for (int round = 0; round < 10; round++) {
		if (round % 2) {
			OK(a, DO_OUT);
			OK(b, DO_OUT);
			OK(a, DO_IN);
			OK(b, DO_IN);
		} else { /* at once */
			begin_order(a, (struct word){DO_OUT});
			begin_order(b, (struct word){DO_OUT});
			EQUAL(end_order(a).c, 0);
			EQUAL(end_order(b).c, 0);
			EQUAL(card(a), 2 * CONTEXT);
			begin_order(a, (struct word){DO_IN});
			begin_order(b, (struct word){DO_IN});
			EQUAL(end_order(a).c, 0);
			EQUAL(end_order(b).c, 0);
		}
		back(a);
		back(b);
		CHECK(TELL(b, DO_FILLED, p_in_b, 16 * MiB, 1).c && TELL(a, DO_FILLED, q_in_a, 24 * MiB, 2).c);
	}
	EQUAL(counted(a), 2 * CONTEXT + 40 * MiB);
}

static void both_work_while_it_goes_and_comes(void)
{
	CUdeviceptr p, q;
	struct word w;

	begin_two();
	p = alloc(a, 8 * MiB);
	q = open_in(b, name(a, p));
	TELL(a, DO_WRITE_ON, p, 4 * MiB);
	TELL(b, DO_WRITE_ON, q + 4 * MiB, 4 * MiB);
	for (int round = 0; round < 10; round++) {
		OK(round % 2 ? a : b, DO_OUT);
		OK(round % 2 ? b : a, DO_OUT);
		OK(a, DO_IN);
		OK(b, DO_IN);
	}
	back(b);
	w = TELL(a, DO_WRITTEN);
	CHECK(w.c && w.a);
	w = TELL(b, DO_WRITTEN);
	CHECK(w.c && w.a);
}

/* Who opens it while it is away waits, as all calls do that touch memory, and is waited for. */
static void it_may_be_opened_while_it_is_away(void)
{
	CUdeviceptr p;
	struct word w = {.order = DO_OPEN};

	begin_two();
	p = alloc(a, 8 * MiB);
	TELL(a, DO_FILL, p, 8 * MiB, 6);
	w.h = name(a, p);
	OK(a, DO_OUT);
	begin_order(b, w);
	for (int i = 0; i < 20; i++)
		TELL(a, DO_HELD);
	OK(a, DO_IN);
	w = end_order(b);
	EQUAL(w.c, 0);
	CHECK(TELL(b, DO_FILLED, w.a, 8 * MiB, 6).c);
}

/* Nothing can be given between the look at who has it and the move. */
static void what_is_opened_as_it_leaves_leaves_too(void)
{
	CUdeviceptr p;

	begin_two();
	p = alloc(a, 2 * MiB);
	TELL(a, DO_FILL, p, 2 * MiB, 6);
	TELL(b, DO_OPEN_ON, .h = name(a, p));
	for (int round = 0; round < 100; round++) {
		OK(a, DO_OUT);
		EQUAL(card(a), 2 * CONTEXT);
		OK(a, DO_IN);
	}
	CHECK(TELL(b, DO_OPENED).a);
	CHECK(TELL(a, DO_FILLED, p, 2 * MiB, 6).c);
	OK(a, DO_FREE, p);
	EQUAL(card(a), 2 * CONTEXT);
}

/* Each has both cards; memory of the second is opened with the first as the current one, and used on both. */
static void on_either_card(void)
{
	static const int64_t long_ns = 300 * MS;
	CUdeviceptr p[2], q[2];
	int64_t launched;

	setenv("STUB_DEVICES", "2", 1);
	begin_two();
	for (int dev = 1; dev >= 0; dev--) {
		OK(a, DO_CARD, (uint64_t)dev);
		p[dev] = alloc(a, 16 * MiB);
		TELL(a, DO_FILL, p[dev], 16 * MiB, 3 + (unsigned)dev);
	}
	for (int dev = 0; dev < 2; dev++)
		q[dev] = open_in(b, name(a, p[dev]));
	OK(b, DO_CARD, 1);
	for (int round = 0; round < 3; round++) {
		launched = now_ns();
		OK(b, DO_LAUNCH, (uint64_t)long_ns); /* on the second card, with what was opened on the first */
		OK(a, DO_OUT);
		CHECK(now_ns() - launched >= long_ns);
		EQUAL(TELL(b, DO_USED, 0).b, 2 * CONTEXT);
		EQUAL(TELL(b, DO_USED, 1).b, 2 * CONTEXT);
		OK(b, DO_OUT);
		OK(a, DO_IN);
		OK(b, DO_IN);
		back(b);
		for (int dev = 0; dev < 2; dev++) {
			EQUAL(TELL(b, DO_USED, (uint64_t)dev).b, 2 * CONTEXT + 16 * MiB);
			CHECK(TELL(b, DO_FILLED, q[dev], 16 * MiB, 3 + (unsigned)dev).c && TELL(a, DO_FILLED, p[dev], 16 * MiB, 3 + (unsigned)dev).c);
		}
	}
	for (int dev = 0; dev < 2; dev++) {
		OK(b, DO_CLOSE, q[dev]);
		OK(a, DO_FREE, p[dev]);
		EQUAL(TELL(a, DO_USED, (uint64_t)dev).b, 2 * CONTEXT);
	}
}

MAIN(T(what_two_processes_have_goes_and_comes), T(whatever_its_size), T(a_handle_is_only_data),
	T(what_its_owner_frees_stays_for_the_other), T(a_descriptor_of_memory_goes_and_comes), T(a_descriptor_that_is_none_of_ours),
	T(others_are_held_back_only_for_what_they_have), T(each_has_something_of_the_other), T(both_work_while_it_goes_and_comes),
	T(it_may_be_opened_while_it_is_away), T(what_is_opened_as_it_leaves_leaves_too), T(on_either_card))
