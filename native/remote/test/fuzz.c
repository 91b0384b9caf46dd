/* What a client may send that is none: the server ends the session or goes on, and never fails in another way. */
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include "check_remote.h"
#include "../code.h"
#include "../pass.h"
#include "../server.h"

static uint64_t state;

static uint64_t rnd(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

/* Where memory is that the session has; 0: not known yet. It is in the first answer of all that allocate. */
static _Atomic uint64_t *memory;
#define MEMORY_BYTES 4096

static uint64_t odd_number(void)
{
	static const uint64_t edges[] = {0, 1, 2, 15, 16, 17, 18, 4096, UINT32_MAX, UINT64_MAX, INT64_MAX, 1 << 20, (1 << 20) + 15};
	if (memory && !rnd(4))
		return *memory + rnd(4) * 64;
	return rnd(2) ? edges[rnd(sizeof edges / sizeof *edges)] : rnd(64) ? rnd(256) : state;
}

static const uint32_t sizes[REMOTE_CALLS] = {
#define SIZE(symbol, size) [CALL_##symbol] = size,
	EACH_SIZE(SIZE)
	[CALL_lane_context] = 8, [CALL_retain] = 4, [CALL_release] = 4, [CALL_create_context] = 8, [CALL_destroy_context] = 8, [CALL_error_text] = 8, [CALL_nvml_own_bytes] = 4, [CALL_launch] = sizeof(struct wire_launch) + 20, [CALL_words] = 0, [CALL_linked] = 0, [CALL_pointer] = 16,
	[CALL_write] = sizeof(struct wire_copy) + 64, [CALL_write_large] = sizeof(struct wire_copy) + 64, [CALL_read] = sizeof(struct wire_copy), [CALL_function] = sizeof(struct wire_name) + 4, [CALL_global] = sizeof(struct wire_name) + 4,
};

/* Text that the server retains. */
static uint32_t text(unsigned char *to)
{
	memset(to, ' ', LEAST_RETAINED_BYTES);
	memcpy(to, ".version 8.0", 12);
	to[LEAST_RETAINED_BYTES - 1] = 0;
	return LEAST_RETAINED_BYTES;
}

static uint32_t code(unsigned char *to)
{
	static const char elf[] = "\177ELF";
	struct wire_load l = {.options = (uint32_t)rnd(rnd(4) ? 3 : 40), .words = rnd(2), .library = rnd(2)};
	uint32_t n = sizeof l;

	for (unsigned i = 0; i < MOST_OPTIONS; i++)
		l.option[i] = (int32_t)rnd(18);
	memcpy(to, &l, sizeof l);
	if (rnd(3))
		return n + text(to + n);
	for (int i = 0; i < 300; i++)
		to[n + (unsigned)i] = (unsigned char)(rnd(3) ? rnd(8) : rnd(256));
	memcpy(to + n, elf, 4);
	return n + 300;
}

/* Code that was sent, or another. */
static uint32_t again(unsigned char *to)
{
	struct wire_load l = {.options = (uint32_t)rnd(rnd(4) ? 3 : 40)};
	static const unsigned char key[CODE_KEY_BYTES]; /* of the session below */
	struct code_name name;

	code_name(to, text(to), key, &name);
	if (!rnd(4))
		name.hash[rnd(2)] ^= (uint64_t)1 << rnd(64);
	if (!rnd(8))
		name.size = odd_number();
	for (unsigned i = 0; i < MOST_OPTIONS; i++)
		l.option[i] = (int32_t)rnd(18);
	memcpy(to, &l, sizeof l);
	memcpy(to + sizeof l, &name, sizeof name);
	return (uint32_t)(sizeof l + sizeof name + (rnd(50) ? 0 : rnd(9)));
}

/* What is to be linked, or what looks like it. */
static uint32_t link_inputs(unsigned char *to)
{
	struct wire_load l = {.options = (uint32_t)rnd(rnd(4) ? 3 : 40), .words = rnd(2)};
	uint32_t n = sizeof l;

	memcpy(to, &l, sizeof l);
	for (uint64_t left = rnd(4); left; left--) {
		struct wire_input in = {.size = rnd(8) ? 13 : odd_number(), .type = rnd(8) ? LINK_PTX : (uint32_t)odd_number(), .name = rnd(8) ? 5 : (uint32_t)odd_number()};
		memcpy(to + n, &in, sizeof in);
		memcpy(to + n + sizeof in, "name", 5);
		memcpy(to + n + sizeof in + 5, rnd(8) ? ".version 8.0" : "\177ELF\1\1\1\1\1\1\1\1", 13);
		n += sizeof in + 18;
	}
	return n - (rnd(8) ? 0 : (uint32_t)rnd(20));
}

/* A payload of numbers, some of which are handles, sizes or addresses that there are. */
static uint32_t payload(unsigned char *to, unsigned call)
{
	uint32_t n = call < REMOTE_CALLS && rnd(300) ? sizes[call] : (uint32_t)rnd(200);

	if (call == CALL_load)
		return code(to);
	if (call == CALL_load_again)
		return again(to);
	if (call == CALL_link)
		return link_inputs(to);
	for (uint32_t i = 0; i < n + 8; i += 8) {
		uint64_t v = odd_number();
		memcpy(to + i, &v, 8);
	}
	if (call == CALL_function || call == CALL_global) {
		struct wire_name of = {.id = rnd(4) ? 16 : odd_number(), .of = (uint32_t)rnd(4)};
		memcpy(to, &of, sizeof of);
		memcpy(to + sizeof of, call == CALL_function ? "nop" : "txt", 4);
	}
	if (call == CALL_launch) {
		struct wire_launch l = {.function = rnd(4) ? 16 : odd_number(), .stream = odd_number(), .attributes = rnd(2) ? 0 : (uint32_t)rnd(rnd(8) ? 3 : 40), .kernel = rnd(2)};
		memcpy(to, &l, sizeof l);
		n += l.attributes < 3 ? l.attributes * (uint32_t)sizeof(CUlaunchAttribute) : 0;
		for (uint32_t i = 0; i < l.attributes && i < 3; i++)
			memcpy(to + sizeof l + i * sizeof(CUlaunchAttribute), &(uint64_t){rnd(16)}, 8);
	}
	if ((call == CALL_write || call == CALL_write_large) && rnd(50)) {
		struct wire_copy c = {.address = odd_number(), .bytes = 64};
		memcpy(to, &c, sizeof c);
	}
	if (call == CALL_read) {
		struct wire_copy c = {.address = odd_number(), .bytes = (uint32_t)odd_number(), .stream = rnd(20), .with_stream = rnd(2)};
		memcpy(to, &c, sizeof c);
	}
	if (call == CALL_pointer)
		memcpy(to + 8, &(uint64_t){rnd(16)}, 8);
	return n;
}

/* Calls that mostly succeed, so that there is something to name. */
static unsigned opening(unsigned char *to, uint64_t number, uint32_t *size)
{
	static const unsigned calls[] = {CALL_retain, CALL_lane_context, CALL_load, CALL_function, CALL_load, CALL_function, CALL_cuStreamCreate, CALL_cuEventCreate, CALL_cuMemAlloc_v2};
	unsigned call = number <= sizeof calls / sizeof *calls ? calls[number - 1] : 0;
	bool library = number > 4; /* the second time */

	if (!call)
		return 0;
	*size = call == CALL_load ? 0 : sizes[call];
	memset(to, 0, 512);
	if (call == CALL_load) {
		memcpy(to, &(struct wire_load){.library = library}, sizeof(struct wire_load));
		*size = sizeof(struct wire_load) + text(to + sizeof(struct wire_load));
	} else if (call == CALL_function) {
		memcpy(to, &(struct wire_name){.id = 16, .of = library ? OF_LIBRARY : OF_MODULE}, sizeof(struct wire_name));
		memcpy(to + sizeof(struct wire_name), "nop", 4);
	} else if (call != CALL_retain) {
		memcpy(to, &(uint64_t){call == CALL_cuMemAlloc_v2 ? MEMORY_BYTES : 16}, 8);
	}
	return call;
}

/* What else a client can do to memory that it shares: positions that cannot be, bytes that change after they were written. */
static void vandalize(struct connection *c)
{
	struct ring *r = &c->memory->from[rnd(2)];

	switch (rnd(40)) {
	case 0: atomic_store(&r->written, odd_number()); break;
	case 1: atomic_store(&r->read, odd_number()); break;
	case 2: atomic_store(&r->written, c->written + rnd(2 * RING_BYTES)); break;
	case 3: case 4: atomic_store(&r->reader_sleeps, (unsigned)odd_number()); break;
	case 5: case 6: atomic_store(&r->writer_sleeps, (unsigned)odd_number()); break;
	default: r->bytes[(c->written - 1 - rnd(300)) % RING_BYTES] ^= (unsigned char)rnd(256);
	}
}

static void send_frames(struct connection *c, int frames)
{
	static unsigned char bytes[2 * LEAST_RETAINED_BYTES];

	for (uint64_t number = 1; frames--; number++) {
		unsigned call = (unsigned)rnd(rnd(500) ? REMOTE_CALLS : 65536);
		struct frame f = {.lane = 1, .number = rnd(500) ? number : rnd(1000)};
		f.call = (uint16_t)opening(bytes, number, &f.size);
		bool opens = f.call;
		if (opens) {
			f.number = number;
		} else {
			while (!atomic_load(memory)) /* until the answers to the opening are there */
				sched_yield();
			f.call = (uint16_t)(call == CALL_goodbye ? CALL_launch : call);
			f.lane = (uint16_t)(rnd(500) ? 1 + rnd(3) : rnd(65536));
			f.size = f.call ? payload(bytes, f.call) : (uint32_t)(rnd(500) == 0);
		}
		if (!f.call)
			number--;
		if (!opens && !rnd(2000))
			f.size = (uint32_t)state;
		if (!opens && !rnd(2000))
			f.seen = odd_number();
		if (!connection_write(c, &f, sizeof f) || !connection_write(c, bytes, f.size < sizeof bytes ? f.size : 0))
			return;
		if (c->memory && !opens && !rnd(40))
			vandalize(c);
	}
}

static bool receive_all(struct connection *to, void *into, size_t bytes)
{
	for (ssize_t n; bytes; bytes -= (size_t)n, into = (char *)into + n)
		if ((n = connection_receive(to, into, bytes)) <= 0)
			return false;
	return true;
}

/* Reads the answers up to that which says where memory is. */
static uint64_t find_memory(struct connection *to)
{
	static char away[sizeof(struct answer) + sizeof(struct wire_function) + MOST_PARAMS * sizeof(struct wire_param)];
	struct frame f;
	uint64_t at;

	while (receive_all(to, &f, sizeof f) && f.size <= sizeof away && receive_all(to, away, f.size))
		if (f.call == CALL_cuMemAlloc_v2 && f.size == sizeof(struct answer) + sizeof at)
			return memcpy(&at, away + sizeof(struct answer), sizeof at), at;
	return UINT64_MAX; /* the session is over */
}

/* Somebody reads the answers. */
static pid_t drain(struct connection to, int file)
{
	static char away[65536];
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	if (file >= 0 && !connection_share(&to, file, CLIENT_SIDE)) /* a child does not have its parent's */
		_exit(1);
	atomic_store(memory, find_memory(&to));
	while (connection_receive(&to, away, sizeof away) > 0)
		;
	_exit(0);
}

/* Takes the server's answer, and the memory that comes with it if this asked for some. */
static int answered(struct connection *c, const struct hello *asked)
{
	struct hello answer;
	int file;

	CHECK(pass_receive(c->fd, &answer, &file));
	EQUAL(answer.kind, asked->kind);
	CHECK((file >= 0) == (asked->kind == HELLO_SHARED));
	if (file >= 0)
		CHECK(connection_share(c, file, CLIENT_SIDE) && socket_write(c->fd, &(uint64_t){1}, 8));
	return file;
}

static void hostile(void)
{
	const char *runs = getenv("FUZZ_RUNS"), *seed = getenv("FUZZ_SEED");
	char card[512];
	int ended[2][2] = {{0}}, found = 0;

	memory = mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	snprintf(card, sizeof card, "%s/card", check_root);
	setenv("STUB_CARD", card, 1);
	for (int run = getenv("FUZZ_RUN") ? atoi(getenv("FUZZ_RUN")) : 0; run < (runs ? atoi(runs) : 150); run++) {
		struct hello first = {.version = REMOTE_VERSION, .kind = run % 2 ? HELLO_SHARED : HELLO_CALLS};
		int pair[2], control[2], status;
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, control) == 0);
		pid_t pid = fork();
		if (pid == 0) {
			close(pair[1]);
			close(control[1]);
			alarm(60);
			CHECK(freopen("/dev/null", "w", stdout));
			_exit(driver_load() ? session_run(pair[0], control[0], &first, first.session, 0) : 77);
		}
		close(pair[0]);
		close(control[0]);
		struct connection c = {.fd = pair[1]};
		int file = answered(&c, &first);
		atomic_store(memory, 0);
		pid_t reads = drain(c, file);
		state = 88172645463325252ull + (uint64_t)run * 7919 + (seed ? strtoull(seed, NULL, 10) * 104729 : 0);
		send_frames(&c, 150);
		found += atomic_load(memory) != UINT64_MAX;
		shutdown(pair[1], SHUT_RDWR);
		close(pair[1]);
		if (file >= 0)
			close(file);
		connection_unshare(&c);
		CHECK(waitpid(pid, &status, 0) == pid && waitpid(reads, NULL, 0) == reads);
		close(control[1]);
		if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) {
			fprintf(stderr, "run %d: status %x\n", run, status);
			_exit(1);
		}
		ended[run % 2][WEXITSTATUS(status)]++;
	}
	CHECK(found);
	for (int shared = 0; shared < 2; shared++)
		CHECK(ended[shared][0] > 0 && ended[shared][1] > 0); /* some were refused in the middle, some came to their end */
}

MAIN(T(hostile))
