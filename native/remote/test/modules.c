/* Code that is loaded again: what is sent of it, and that a program has the code that it loaded, whatever breaks. */
#include "linked.h"
#include "network.h"
#include "../code.h"

#define MIB ((size_t)1 << 20)

/* Text that differs from others of its size in one letter. */
static char *code(size_t size, char letter)
{
	char *text = malloc(size);

	CHECK(text);
	memset(text, ' ', size);
	memcpy(text, ".version 8.0", 12);
	text[size - 2] = letter;
	text[size - 1] = 0;
	return text;
}

/* Loads it, sees that the card has that and nothing else, and says how many bytes loading took. */
static long load(size_t size, char letter, CUmodule *mod)
{
	char *text = code(size, letter), *back = malloc(size);
	long before = atomic_load(&carried), took;
	CUdeviceptr p;
	size_t bytes;

	EQUAL(cuModuleLoadData(mod, text), CUDA_SUCCESS);
	took = atomic_load(&carried) - before;
	EQUAL(cuModuleGetGlobal_v2(&p, &bytes, *mod, "text"), CUDA_SUCCESS);
	EQUAL(bytes, size);
	if (size <= 128 << 10)
		EQUAL(cuMemcpyDtoH_v2(back, p, size), CUDA_SUCCESS);
	else {
		memcpy(back, text, size);
		EQUAL(cuMemcpyDtoH_v2(back + size - 2, p + size - 2, 2), CUDA_SUCCESS);
	}
	CHECK(!memcmp(text, back, size));
	free(text);
	free(back);
	return took;
}

static bool sent(size_t size, char letter)
{
	CUmodule mod;
	long took = load(size, letter, &mod);

	CHECK(took < 4096 || (took >= (long)size && took < (long)size + 4096));
	EQUAL(cuModuleUnload(mod), CUDA_SUCCESS);
	return took >= (long)size;
}

static void start(long cut)
{
	serve_with(NULL, NULL);
	start_network();
	atomic_store(&cut_after, cut);
}

/* Code is sent once, and again when the server has dropped it, which it does with what was loaded longest ago. */
static void once(void)
{
	CUmodule first, second;
	CUfunction f;

	start(LONG_MAX);
	begin();
	CHECK(load(MIB, 'a', &first) > (long)MIB);
	CHECK(load(MIB, 'a', &second) < 4096);
	CHECK(first != second);
	EQUAL(cuModuleUnload(first), CUDA_SUCCESS);
	EQUAL(cuModuleGetFunction(&f, second, "add"), CUDA_SUCCESS);
	for (char c = 'b'; c <= 'd'; c++)
		CHECK(sent(MIB, c));
	CHECK(!sent(MIB, 'a'));
	CHECK(sent(MIB, 'e') && sent(MIB, 'f')); /* the server retains four */
	CHECK(!sent(MIB, 'a') && !sent(MIB, 'd') && !sent(MIB, 'e') && !sent(MIB, 'f'));
	CHECK(sent(MIB, 'b') && !sent(MIB, 'b'));
}

/* What the server does not retain is not asked for. */
static void sizes(void)
{
	start(LONG_MAX);
	begin();
	for (int i = 0; i < 2; i++) {
		CHECK(sent(MOST_RETAINED_BYTES + 1, 'a'));
		CHECK(sent(LEAST_RETAINED_BYTES - 1, 'a'));
	}
	CHECK(sent(LEAST_RETAINED_BYTES, 'a') && !sent(LEAST_RETAINED_BYTES, 'a'));
	CHECK(sent(MOST_RETAINED_BYTES, 'a') && !sent(MOST_RETAINED_BYTES, 'a'));
	CHECK(sent(LEAST_RETAINED_BYTES, 'a'));
}

/* More codes than the server has places for; it retains the newest. */
static void many(void)
{
	start(LONG_MAX);
	begin();
	for (size_t i = 0; i < 70; i++)
		CHECK(sent(LEAST_RETAINED_BYTES + i, 'a'));
	CHECK(!sent(LEAST_RETAINED_BYTES + 69, 'a') && sent(LEAST_RETAINED_BYTES, 'a'));
}

static CUresult ask(const struct code_name *name)
{
	struct { struct wire_load l; struct code_name name; } again = {.name = *name};
	uint64_t id;

	return call_sync(CALL_load_again, &again, sizeof again, &id, sizeof id);
}

/* A name of code that this session has not loaded is of nothing, whatever a client asks for. */
static void unknown(void)
{
	char *text = code(MIB, 'a');
	struct code_name name;

	start(LONG_MAX);
	begin();
	code_name(text, MIB, client_session(), &name);
	EQUAL(ask(&name), CODE_UNKNOWN);
	CHECK(sent(MIB, 'a'));
	EQUAL(ask(&name), CUDA_SUCCESS);
	for (unsigned bit = 0; bit < 8 * sizeof name; bit++) {
		struct code_name other = name;
		((unsigned char *)&other)[bit / 8] ^= (unsigned char)(1 << bit % 8);
		EQUAL(ask(&other), CODE_UNKNOWN);
	}
	EQUAL(ask(&(struct code_name){0}), CODE_UNKNOWN);
	EQUAL(cuModuleLoadData(&(CUmodule){0}, "no code"), CUDA_ERROR_NOT_SUPPORTED);
	CHECK(!sent(MIB, 'a'));
}

/* Two processes of one server: neither has the other's code, nor can it learn what that has loaded. */
static void apart(void)
{
	int ready[2], end[2], status;
	char c;

	start(LONG_MAX);
	CHECK(pipe(ready) == 0 && pipe(end) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		CUmodule mod;
		begin();
		load(MIB, 'a', &mod);
		CHECK(write(ready[1], "x", 1) == 1 && read(end[0], &c, 1) == 1);
		load(MIB, 'a', &mod);
		_exit(0);
	}
	CHECK(read(ready[0], &c, 1) == 1);
	begin();
	CHECK(sent(MIB, 'a') && !sent(MIB, 'a'));
	CHECK(write(end[1], "x", 1) == 1);
	CHECK(waitpid(pid, &status, 0) == pid);
	EQUAL(status, 0);
}

/* The connection breaks at every place of what loading sends, and of the answers. */
static void breaks(void)
{
	const size_t size = LEAST_RETAINED_BYTES;
	CUmodule mod;

	start((long)size + 600);
	begin();
	for (long more = 600; more < 4200; more += 97) {
		atomic_store(&cut_after, (long)size + more); /* from the next connection on */
		for (int i = 0; i < 4; i++) {
			load(size, "abcabdba"[(more + i) % 8], &mod);
			EQUAL(cuModuleUnload(mod), CUDA_SUCCESS);
		}
		for (CUmodule again[4], *m = again; m < again + 4; m++) {
			char *text = code(size, 'a');
			EQUAL(cuModuleLoadData(m, text), CUDA_SUCCESS);
			EQUAL(cuModuleUnload(*m), CUDA_SUCCESS);
			free(text);
		}
	}
	CHECK(atomic_load(&cuts) > 20);
}

static void *load_some(void *ctx)
{
	CUmodule mod;

	EQUAL(cuCtxSetCurrent(ctx), CUDA_SUCCESS);
	for (int i = 0; i < 40; i++) {
		load(LEAST_RETAINED_BYTES + (size_t)(i % 3), "abc"[i % 2], &mod);
		EQUAL(cuModuleUnload(mod), CUDA_SUCCESS);
		if (i % 8 == 0) { /* the others' code is dropped while they ask for it */
			load(MOST_RETAINED_BYTES, 'a', &mod);
			EQUAL(cuModuleUnload(mod), CUDA_SUCCESS);
		}
	}
	return NULL;
}

/* Threads load and unload the same code at once, and the server drops it in between. */
static void threads(void)
{
	CUcontext ctx;
	pthread_t t[4];

	start(LONG_MAX);
	begin();
	EQUAL(cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, load_some, ctx) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

/* The hash is SipHash-1-3 of 128 bits, as OpenSSL makes it of the bytes 0, 1, 2, … with the key 0, 1, …, 15. */
static void names(void)
{
	static const struct { size_t size; unsigned char hash[16]; } known[] = {
		{0, {0xe7, 0x7e, 0xbc, 0xb2, 0x27, 0x88, 0xa5, 0xbe, 0xfd, 0x62, 0xdb, 0x6a, 0xdd, 0x30, 0x30, 0x01}},
		{1, {0xfc, 0x6f, 0x37, 0x04, 0x60, 0xd3, 0xed, 0xa8, 0x5e, 0x05, 0x73, 0xcc, 0x2b, 0x2f, 0xf0, 0x63}},
		{8, {0xaa, 0x12, 0xfe, 0xe1, 0xd5, 0xe3, 0xda, 0xb4, 0x72, 0x4f, 0x16, 0xab, 0x35, 0xf9, 0xc7, 0x99}},
		{15, {0xc1, 0x7e, 0x55, 0x05, 0xb2, 0xbd, 0x52, 0x6c, 0x29, 0x21, 0xcd, 0xec, 0x1e, 0x7e, 0x01, 0x09}},
		{63, {0x4c, 0x58, 0x00, 0xe3, 0x4e, 0xfe, 0x42, 0x6f, 0x07, 0x9f, 0x6b, 0x0a, 0xa7, 0x52, 0x60, 0xad}},
	};
	unsigned char bytes[64];

	for (unsigned i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)i;
	for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
		struct code_name name;
		code_name(bytes, known[i].size, bytes, &name);
		EQUAL(name.size, known[i].size);
		CHECK(!memcmp(name.hash, known[i].hash, sizeof name.hash));
	}
}

MAIN(T(once), T(sizes), T(many), T(unknown), T(apart), T(breaks), T(threads), T(names))
