/*
 * What comes from outside, fuzzed: the limits file, the control protocol, a hostile container's request file beside a
 * container that behaves, and other processes of the container (fuzz_peers.h). The first byte of an input says which. LLVMFuzzerTestOneInput is libFuzzer's: with clang, build
 * with -DLIBFUZZER -fsanitize=fuzzer,address. Without it, the loop below mutates the seeds in test/seeds and goes on from
 * inputs that got somewhere new (gcc's -fsanitize-coverage=trace-pc says so). It is the same run every time, unless
 * FUZZ_SEED and FUZZ_RUNS say otherwise.
 */
#include <dirent.h>
#include <sys/mman.h>
#include "../hold.h"
#include "calls.h"
#include "fuzz_peers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- limits ---- */

static void fuzz_limits(const uint8_t *data, size_t size)
{
	char text[8192], why[256] = "";
	struct limits l;

	if (size >= sizeof text)
		size = sizeof text - 1;
	memcpy(text, data, size);
	text[size] = 0;
	if (!limits_parse(text, &l, why, sizeof why)) {
		CHECK(*why);
		return;
	}
	CHECK(*l.container && strlen(l.container) < sizeof l.container && l.quantum_ms >= 1);
	for (int i = 0; i < l.devices; i++)
		CHECK(l.device[i].compute >= 1 && l.device[i].compute <= 10000 && strlen(l.device[i].uuid) < sizeof l.device[i].uuid);
}

/* ---- the control protocol ---- */

static void fuzz_control(const uint8_t *data, size_t size)
{
	char request[256], reply[8192];
	int n;

	if (size < 1)
		return;
	bool trusted = data[0] & 1;
	size = size - 1 < sizeof request - 1 ? size - 1 : sizeof request - 1;
	memcpy(request, data + 1, size);
	request[size] = 0;
	request[strcspn(request, "\r\n")] = 0;
	if (trusted && strstr(request, "prepare"))
		return; /* would take the memory it is asked to take */
	n = control_answer(request, trusted, reply, sizeof reply);
	hold_end(); /* other inputs make calls */
	CHECK(n > 0 && n < (int)sizeof reply && n == (int)strlen(reply) && reply[n - 1] == '\n' && !strncmp(reply, "{\"ok\":", 6));
}

/* ---- requests ---- */

#define STEP (50 * MS) /* so that an input of a few KiB is longer than what is borne of a neighbour */

/* The neighbour takes turns as the library does, for as long as it is given them. */
static void behave(struct card *c, int tenant, struct said *s, int64_t *waits, int64_t now)
{
	struct row *r = &c->tenant[tenant].row[0];
	bool has = (r->turn & 1) != 0;

	s->beat++;
	s->wants = !has;
	if (!has)
		s->released = (r->turn - 1) | 1;
	if (has || c->tenant[tenant].credit < TURN_NS)
		*waits = now;
	CHECK(now - *waits < GRACE_NS + LEASE_NS + 200 * MS); /* it has credit, asks, and never waits longer */
	card_row_said(c, tenant, 0, s, now);
}

static void fuzz_requests(const uint8_t *data, size_t size)
{
	static struct card *c;
	static int fd = -1;
	struct said honest = {0};
	int64_t now = 1, waits = 1;

	if (!c)
		c = malloc(sizeof *c);
	if (fd < 0)
		fd = memfd_create("requests", MFD_CLOEXEC);
	CHECK(c && fd >= 0 && ftruncate(fd, 0) == 0 && ftruncate(fd, sizeof(struct request_file)) == 0);
	card_start(c, now);
	for (int i = 0; i < 2; i++) {
		EQUAL(card_tenant_join(c, 5000, i == 0 && size && (data[0] & 1), now), i);
		card_tenant_limits(c, i, 5000, i == 0 && size && (data[0] & 1), GiB, 10000 * MS);
	}
	/* four bytes of what to do, then up to 60 of what to write */
	for (; size > 4; now += STEP) {
		size_t n = size - 4 < 60 ? size - 4 : 60, at = (data[1] * 256u + data[2]) % (sizeof(struct request_file) - 60);
		bool all = data[0] & 1, cut = data[0] & 2, restore = data[0] & 4, late = data[0] & 8;
		CHECK(pwrite(fd, data + 4, n, (off_t)at) == (ssize_t)n);
		if (cut)
			CHECK(ftruncate(fd, (off_t)(data[3] * 41)) == 0);
		if (restore)
			request_restore(fd);
		if (late)
			waits = now += data[3] * MS; /* the arbiter did not look: nobody's fault */
		data += 4 + n;
		size -= 4 + n;
		request_read(fd, c, 0, all, now);
		request_read_memory(fd, c, 0, now);
		behave(c, 1, &honest, &waits, now);
		card_row_memory(c, 1, 0, &(struct said_memory){.resident = MiB, .runnable = 1, .moved = c->tenant[1].row[0].eviction}, now);
		card_decide(c, now);
		card_decide_evictions(c, now);
		for (int t = 0; t < 2; t++) {
			CHECK(c->tenant[t].rows <= MAX_ROWS && c->tenant[t].credit <= credit_cap(5000) + (GRACE_NS + LEASE_NS) / 2);
			for (int r = 0; r < c->tenant[t].rows; r++)
				CHECK(c->tenant[t].row[r].resident <= GiB && c->tenant[t].row[r].evict <= GiB);
		}
		CHECK(c->current.tenant >= -1 && c->current.tenant < 2 && c->current.row < MAX_ROWS);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	switch (data[0]) {
	case 'L': fuzz_limits(data + 1, size - 1); break;
	case 'C': fuzz_control(data + 1, size - 1); break;
	case 'R': fuzz_requests(data + 1, size - 1); break;
	case 'P': fuzz_peer_asks(data + 1, size - 1); break;
	case 'A': fuzz_peer_answers(data + 1, size - 1); break;
	}
	return 0;
}

/* The parts below this file are the whole library: a session is there for the control protocol. */
static void begin_session(void)
{
	begin_swap();
	begin_peers();
}

#ifdef LIBFUZZER
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	check_container();
	begin_session();
	return 0;
}
#else

/* ---- a loop for compilers without libFuzzer ---- */

#define EDGES 65536
#define LONGEST 4096
#define MAX_CORPUS 2048
static unsigned char edge[EDGES];
static unsigned edges;
static struct { uint8_t *data; size_t size; } corpus[MAX_CORPUS];
static unsigned inputs;
static uint64_t state;

/* Called at every branch where the compiler was asked to. */
__attribute__((no_sanitize("address", "undefined"), no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void);
__attribute__((no_sanitize("address", "undefined"), no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void)
{
	uintptr_t at = (uintptr_t)__builtin_return_address(0);
	at = (at ^ at >> 16) % EDGES;
	edges += !edge[at];
	edge[at] = 1;
}

static unsigned any(unsigned n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state >> 20) % n;
}

static void remember(const uint8_t *data, size_t size)
{
	if (inputs == MAX_CORPUS)
		return;
	corpus[inputs].data = malloc(size ? size : 1);
	CHECK(corpus[inputs].data);
	memcpy(corpus[inputs].data, data, size);
	corpus[inputs++].size = size;
}

static void read_seeds(const char *folder)
{
	struct dirent **list;
	int n = scandir(folder, &list, NULL, alphasort);
	uint8_t data[LONGEST];
	char path[600];

	CHECK(n > 0);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
		FILE *f = list[i]->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (f) {
			size_t size = fread(data, 1, sizeof data, f);
			fclose(f);
			LLVMFuzzerTestOneInput(data, size);
			remember(data, size);
		}
		free(list[i]);
	}
	free(list);
	CHECK(inputs >= 10);
}

static size_t mutate(uint8_t *data)
{
	static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff, ' ', '\n', '0', '9', '-', '.'};
	unsigned from = any(inputs), other = any(inputs);
	size_t size = corpus[from].size;

	memcpy(data, corpus[from].data, size);
	for (unsigned i = any(6); i < 6; i++) {
		size_t at = 1 + any((unsigned)size + 1), n = 1 + any(64); /* the first byte stays: it says what the input is for */
		switch (any(5)) {
		case 0: if (at < size) data[at] = (uint8_t)any(256); break;
		case 1: if (at < size) data[at] = odd[any(sizeof odd)]; break;
		case 2: if (at < size) size = at; break;
		case 3:
			if (at <= size && size + n <= LONGEST) {
				memmove(data + at + n, data + at, size - at);
				memset(data + at, odd[any(sizeof odd)], n);
				size += n;
			}
			break;
		case 4:
			if (at < size && corpus[other].size > at && at + n <= LONGEST && at + n <= corpus[other].size) {
				memcpy(data + at, corpus[other].data + at, n);
				size = size < at + n ? at + n : size;
			}
			break;
		}
	}
	return size;
}

static void inputs_do_no_harm(void)
{
	const char *seed = getenv("FUZZ_SEED"), *runs = getenv("FUZZ_RUNS");
	unsigned seeds, before;
	uint8_t data[LONGEST];

	state = 0x9e3779b97f4a7c15 * (seed ? strtoull(seed, NULL, 10) + 1 : 1);
	begin_session();
	read_seeds("test/seeds");
	seeds = inputs;
	for (long n = runs ? strtol(runs, NULL, 10) : 20000; n > 0; n--) {
		size_t size = mutate(data);
		before = edges;
		LLVMFuzzerTestOneInput(data, size);
		if (edges != before)
			remember(data, size);
	}
	printf("fuzz: %u seeds, %u inputs that got somewhere new, %u edges\n", seeds, inputs - seeds, edges);
	fflush(stdout);
}

MAIN(T(inputs_do_no_harm))
#endif
