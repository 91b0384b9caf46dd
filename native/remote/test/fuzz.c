/* What a client may send that is none: the server ends the session or goes on, and never fails in another way. */
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

static uint64_t odd_number(void)
{
	static const uint64_t edges[] = {0, 1, 2, 15, 16, 17, 18, 4096, UINT32_MAX, UINT64_MAX, INT64_MAX, 1 << 20, (1 << 20) + 15};
	return rnd(2) ? edges[rnd(sizeof edges / sizeof *edges)] : rnd(64) ? rnd(256) : state;
}

static const uint32_t sizes[REMOTE_CALLS] = {
#define SIZE(symbol, size) [CALL_##symbol] = size,
	EACH_SIZE(SIZE)
	[CALL_lane_context] = 8, [CALL_retain] = 4, [CALL_release] = 4, [CALL_create_context] = 8, [CALL_destroy_context] = 8, [CALL_error_text] = 8, [CALL_nvml_own_bytes] = 4, [CALL_launch] = sizeof(struct wire_launch) + 20,
	[CALL_write] = sizeof(struct wire_copy) + 64, [CALL_write_large] = sizeof(struct wire_copy) + 64, [CALL_read] = sizeof(struct wire_copy), [CALL_function] = 12, [CALL_global] = 12,
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
	struct wire_load l = {.options = (uint32_t)rnd(rnd(4) ? 3 : 40)};
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

/* A payload of numbers, some of which are handles, sizes or addresses that there are. */
static uint32_t payload(unsigned char *to, unsigned call)
{
	uint32_t n = call < REMOTE_CALLS && rnd(300) ? sizes[call] : (uint32_t)rnd(200);

	if (call == CALL_load)
		return code(to);
	if (call == CALL_load_again)
		return again(to);
	for (uint32_t i = 0; i < n + 8; i += 8) {
		uint64_t v = call == CALL_launch && i < 8 ? 16 : odd_number();
		memcpy(to + i, &v, 8);
	}
	if (call == CALL_function)
		memcpy(to, &(uint64_t){16}, 8), memcpy(to + 8, "nop", 4);
	if ((call == CALL_write || call == CALL_write_large) && rnd(50)) {
		struct wire_copy c = {.address = odd_number(), .bytes = 64};
		memcpy(to, &c, sizeof c);
	}
	return n;
}

/* Calls that mostly succeed, so that there is something to name. */
static unsigned opening(unsigned char *to, uint64_t number, uint32_t *size)
{
	static const unsigned calls[] = {CALL_retain, CALL_lane_context, CALL_load, CALL_function, CALL_cuStreamCreate, CALL_cuEventCreate, CALL_cuMemAlloc_v2};
	unsigned call = number <= sizeof calls / sizeof *calls ? calls[number - 1] : 0;

	if (!call)
		return 0;
	*size = call == CALL_load ? 0 : sizes[call];
	memset(to, 0, 512);
	if (call == CALL_load) {
		*size = sizeof(struct wire_load) + text(to + sizeof(struct wire_load));
	} else if (call == CALL_function) {
		memcpy(to, &(uint64_t){16}, 8);
		memcpy(to + 8, "nop", 4);
	} else if (call != CALL_retain) {
		memcpy(to, &(uint64_t){call == CALL_cuMemAlloc_v2 ? 4096 : 16}, 8);
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
		if (!f.call) {
			f.call = (uint16_t)(call == CALL_goodbye ? CALL_launch : call);
			f.lane = (uint16_t)(rnd(500) ? 1 + rnd(3) : rnd(65536));
			f.size = f.call ? payload(bytes, f.call) : (uint32_t)(rnd(500) == 0);
		}
		if (!f.call)
			number--;
		if (!rnd(2000))
			f.size = (uint32_t)state;
		if (!rnd(2000))
			f.seen = odd_number();
		if (!connection_write(c, &f, sizeof f) || !connection_write(c, bytes, f.size < sizeof bytes ? f.size : 0))
			return;
		if (c->memory && !rnd(40))
			vandalize(c);
	}
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
	int ended[2][2] = {{0}};

	snprintf(card, sizeof card, "%s/card", check_root);
	setenv("STUB_CARD", card, 1);
	for (int run = 0; run < (runs ? atoi(runs) : 150); run++) {
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
		pid_t reads = drain(c, file);
		state = 88172645463325252ull + (uint64_t)run * 7919 + (seed ? strtoull(seed, NULL, 10) * 104729 : 0);
		send_frames(&c, 150);
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
	for (int shared = 0; shared < 2; shared++)
		CHECK(ended[shared][0] > 0 && ended[shared][1] > 0); /* some were refused in the middle, some came to their end */
}

MAIN(T(hostile))
