/* Programs that use a card of another node, and a network between them that breaks. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "linked.h"
#include "network.h"
#include "work.h"
#include "../../cuda/test/stub.h"

/* ---- calls ---- */

static void calls(void)
{
	int n = 0, value = 7;
	size_t bytes = 0, total = 0, offset;
	char name[8];
	const char *words;
	enum { COREDUMP = 0x20, USER_COREDUMP = 0x40 };
	CUcontext ctx = NULL, other;
	CUdeviceptr p;
	CUfunction f;
	void *host;

	EQUAL(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	serve_with(NULL, NULL);
	begin();
	EQUAL(cuDeviceGetCount(&n), CUDA_SUCCESS);
	EQUAL(n, 2);
	EQUAL(cuDeviceGetCount(NULL), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuDeviceGetName(name, sizeof name, 1), CUDA_SUCCESS);
	CHECK(!strcmp(name, "Stub 1"));
	EQUAL(cuDeviceGetName(name, 4, 1), CUDA_SUCCESS);
	CHECK(!strcmp(name, "Stu"));
	EQUAL(cuDeviceGetAttribute(&value, 41, 0), CUDA_SUCCESS);
	EQUAL(value, 0);
	EQUAL(cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &words), CUDA_SUCCESS);
	CHECK(!strcmp(words, "CUDA_ERROR_INVALID_VALUE"));
	EQUAL(cuMemGetInfo_v2(&bytes, &total), CUDA_SUCCESS);
	CHECK(bytes > 0 && total > bytes);
	EQUAL(cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	/* the server writes nobody's core dumps */
	EQUAL(cuCtxCreate_v2(&other, COREDUMP, 0), CUDA_ERROR_NOT_SUPPORTED);
	EQUAL(cuCtxSetFlags(COREDUMP), CUDA_ERROR_NOT_SUPPORTED);
	EQUAL(cuDevicePrimaryCtxSetFlags_v2(0, 4 | USER_COREDUMP), CUDA_ERROR_NOT_SUPPORTED);
	EQUAL(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
	CHECK(other && other != ctx);
	EQUAL(cuCtxGetDevice(&value), CUDA_SUCCESS);
	EQUAL(value, 1);
	EQUAL(cuCtxDestroy_v2(other), CUDA_SUCCESS);
	EQUAL(cuCtxGetDevice(&value), CUDA_SUCCESS);
	EQUAL(value, 0);
	f = kernel("add");
	EQUAL(cuFuncGetParamInfo(f, 2, &offset, &bytes), CUDA_SUCCESS);
	EQUAL(offset, 16);
	EQUAL(bytes, 4);
	EQUAL(cuFuncGetParamInfo(f, 3, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
	CHECK(kernel("add") == f && kernel("store") != f);
	EQUAL(cuMemHostAlloc(&host, 100, 2), CUDA_ERROR_NOT_SUPPORTED);
	EQUAL(cuMemHostAlloc(&host, 100, 0), CUDA_SUCCESS);
	EQUAL(cuMemFreeHost(host), CUDA_SUCCESS);
	EQUAL(cuMemAlloc_v2(&p, 4096), CUDA_SUCCESS);
	EQUAL(cuMemFree_v2(p), CUDA_SUCCESS);
	/* what nobody waited for shows once, where somebody does */
	EQUAL(cuMemsetD8_v2(p, 1, 4096), CUDA_SUCCESS);
	EQUAL(cuCtxSynchronize(), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	/* neither another's memory nor the server's own is copied */
	EQUAL(cuMemcpyDtoH_v2(name, (CUdeviceptr)(uintptr_t)&value, 1), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuMemAlloc_v2(&p, 4096), CUDA_SUCCESS);
	EQUAL(cuMemcpyDtoH_v2(name, p + 4095, 2), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuEventQuery((CUevent)99), CUDA_ERROR_INVALID_HANDLE);
}

/* A module's variables are the program's memory while the module is loaded. */
static void variables(void)
{
	static const char text[] = ".version 8.0 of a variable";
	char back[sizeof text];
	CUmodule mod, other;
	CUdeviceptr p;
	size_t bytes;

	serve_with(NULL, NULL);
	begin();
	EQUAL(cuModuleLoadData(&mod, (void *)text), CUDA_SUCCESS);
	EQUAL(cuModuleLoadData(&other, (void *)text), CUDA_SUCCESS);
	EQUAL(cuModuleGetGlobal_v2(&p, &bytes, mod, "none"), CUDA_ERROR_NOT_FOUND);
	EQUAL(cuModuleGetGlobal_v2(&p, &bytes, other, "text"), CUDA_SUCCESS);
	EQUAL(cuModuleUnload(mod), CUDA_SUCCESS);
	EQUAL(bytes, sizeof text);
	EQUAL(cuMemcpyDtoH_v2(back, p, bytes), CUDA_SUCCESS);
	CHECK(!memcmp(back, text, sizeof text));
	EQUAL(cuModuleUnload(other), CUDA_SUCCESS);
	EQUAL(cuMemcpyDtoH_v2(back, p, bytes), CUDA_ERROR_INVALID_VALUE);
}

/* Every function of the table is there by name. */
static void lookup(void)
{
	void *found;
	int status;

#define LOOK(symbol, mode) do { char base[64]; snprintf(base, sizeof base, "%s", #symbol); \
	char *v = strstr(base, "_v"); if (v) *v = 0; \
	EQUAL(cuGetProcAddress_v2(base, &found, 13000, 0, &status), CUDA_SUCCESS); CHECK(found && !status); } while (0);
	EACH_CALL(LOOK)
	EQUAL(cuGetProcAddress_v2("cuMemAllocManaged", &found, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	CHECK(!found && status == 1);
	EQUAL(cuGetProcAddress_v2("cuLaunchKernel", &found, 13000, CU_GET_PROC_PER_THREAD, NULL), CUDA_SUCCESS);
	CHECK(found != (void *)cuLaunchKernel);
	EQUAL(cuGetProcAddress_v2("cuFuncGetParamInfo", &found, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
}

/* ---- a program, whose result says whether each call was carried out once ---- */

static void programs(void)
{
	int64_t got;
	CUdeviceptr p;
	char a = 5;
	short b = 300;
	void *params[] = {&a, &p, &b};

	serve_with(NULL, NULL);
	begin();
	work(20000);
	EQUAL(cuMemAlloc_v2(&p, 8), CUDA_SUCCESS);
	EQUAL(cuLaunchKernel(kernel("store"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
	EQUAL(cuMemcpyDtoH_v2(&got, p, 8), CUDA_SUCCESS);
	EQUAL(got, 305);
}

/* More small frames than the outbox holds, with nobody who waits: they go on as the server says that it has seen them. */
static void many(void)
{
	CUdeviceptr p;
	unsigned last = 0;

	serve_with(NULL, NULL);
	begin();
	EQUAL(cuMemAlloc_v2(&p, 4), CUDA_SUCCESS);
	for (unsigned i = 0; i <= 200000; i++)
		EQUAL(cuMemsetD32_v2(p, i, 1), CUDA_SUCCESS);
	EQUAL(cuMemcpyDtoH_v2(&last, p, 4), CUDA_SUCCESS);
	EQUAL(last, 200000);
}

/* ---- threads ---- */

static _Atomic int arrived, spun, launched;

static void *spin(void *arg)
{
	CUstream stream;

	EQUAL(cuCtxSetCurrent(arg), CUDA_SUCCESS);
	EQUAL(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
	EQUAL(cuLaunchKernel(kernel("spin"), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_SUCCESS);
	atomic_store(&arrived, 1);
	EQUAL(cuStreamSynchronize(stream), CUDA_SUCCESS);
	atomic_store(&spun, 1);
	return NULL;
}

/* A thread that waits for the card does not hold up the calls of others. */
static void waiting(void)
{
	CUcontext ctx;
	pthread_t t;
	int value, during = 0;

	serve_with(NULL, NULL);
	begin();
	EQUAL(cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	kernel("spin");
	CHECK(pthread_create(&t, NULL, spin, ctx) == 0);
	while (!atomic_load(&arrived))
		sched_yield();
	while (!atomic_load(&spun)) {
		EQUAL(cuCtxGetDevice(&value), CUDA_SUCCESS);
		during += !atomic_load(&spun);
	}
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(during >= 2); /* the first may have come before it waited */
}

/* Waits for a kernel that takes longer than its server lives. */
static void *sleep_beside(void *arg)
{
	EQUAL(cuCtxSetCurrent(arg), CUDA_SUCCESS);
	for (int i = 0; i < 1000; i++)
		EQUAL(cuLaunchKernel(kernel("spin"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
	atomic_store(&arrived, 1);
	EQUAL(cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
	return NULL;
}

static void *worker(void *arg)
{
	EQUAL(cuCtxSetCurrent(arg), CUDA_SUCCESS);
	work(500);
	return NULL;
}

static void threads(void)
{
	pthread_t t[6];
	CUcontext ctx;

	serve_with(NULL, NULL);
	begin();
	EQUAL(cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	kernel("add");
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 6; i++)
			CHECK(pthread_create(&t[i], NULL, worker, ctx) == 0);
		for (int i = 0; i < 6; i++)
			CHECK(pthread_join(t[i], NULL) == 0);
	}
}

/* ---- a network that breaks ---- */

/* The connection breaks within and between frames, of either side, again and again: nothing is lost, nothing runs twice. */
static void breaks(void)
{
	CUfunction add;

	serve_with(NULL, NULL);
	start_network();
	atomic_store(&cut_after, 6 << 20);
	begin();
	add = kernel("add");
	for (long bytes = 6 << 20; bytes > 1000; bytes = bytes * 2 / 3) {
		atomic_store(&cut_after, bytes + 13); /* from the next connection on */
		if (bytes >= (long)CHUNK + 4096)
			work(200);
		else { /* no large copies: a piece would never come through */
			int64_t got = 0;
			CUdeviceptr p, q;
			int n = 1;
			void *params[] = {&p, &q, &n};
			EQUAL(cuMemAlloc_v2(&p, 8), CUDA_SUCCESS);
			EQUAL(cuMemAlloc_v2(&q, 8), CUDA_SUCCESS);
			EQUAL(cuMemsetD8_v2(p, 0, 8), CUDA_SUCCESS);
			EQUAL(cuMemcpyHtoD_v2(q, &(int64_t){1}, 8), CUDA_SUCCESS);
			for (int i = 1; i <= 3000; i++) {
				EQUAL(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
				if (i % 10 == 0) {
					EQUAL(cuMemcpyDtoH_v2(&got, p, 8), CUDA_SUCCESS);
					EQUAL(got, i);
				}
			}
			EQUAL(cuMemFree_v2(p), CUDA_SUCCESS);
			EQUAL(cuMemFree_v2(q), CUDA_SUCCESS);
		}
	}
	CHECK(atomic_load(&cuts) > 20);
}

#define WIDE_BYTES (((size_t)72 << 20) + 5) /* more pieces than the connections have under way together */

static void copy_wide_there_and_back(CUdeviceptr p, unsigned char *mine, unsigned char *theirs, size_t round)
{
	for (size_t i = 0; i < WIDE_BYTES; i++)
		mine[i] = (unsigned char)(i * 31 + i / 4096 + round);
	EQUAL(cuMemcpyHtoD_v2(p, mine, WIDE_BYTES), CUDA_SUCCESS);
	EQUAL(cuMemcpyDtoH_v2(theirs, p, WIDE_BYTES), CUDA_SUCCESS);
	CHECK(!memcmp(mine, theirs, WIDE_BYTES));
}

/* Large copies, one that fails in between, over connections that live long or break after some pieces. */
static void copy_wide_over(long lives)
{
	unsigned char *mine = malloc(WIDE_BYTES + 1), *theirs = malloc(WIDE_BYTES + 1);
	CUdeviceptr p;

	CHECK(mine && theirs);
	serve_with(NULL, NULL);
	start_network();
	atomic_store(&cut_after, lives);
	begin();
	EQUAL(cuMemAlloc_v2(&p, WIDE_BYTES), CUDA_SUCCESS);
	copy_wide_there_and_back(p, mine, theirs, 0);
	EQUAL(cuMemcpyDtoH_v2(theirs, p, WIDE_BYTES + 1), CUDA_ERROR_INVALID_VALUE); /* the last byte is not the program's */
	EQUAL(cuMemcpyHtoD_v2(p, mine, WIDE_BYTES + 1), CUDA_ERROR_INVALID_VALUE);
	copy_wide_there_and_back(p, mine, theirs, 1);
	free(mine);
	free(theirs);
}

static void wide(void)
{
	copy_wide_over(LONG_MAX);
	EQUAL(atomic_load(&cuts), 0);
}

static void wide_breaks(void)
{
	copy_wide_over((12 << 20) + 1);
	CHECK(atomic_load(&cuts) > 10);
}

/* ---- on one node ---- */

/* The client has memory in common with its server, where nobody between keeps the file: the socket carries hardly anything. */
static void shared(void)
{
	serve_with(NULL, NULL);
	with_files = true;
	start_network();
	begin();
	work(500);
	CHECK(atomic_load(&carried) > 0);
	long before = atomic_load(&carried);
	CUdeviceptr p;
	unsigned got;
	EQUAL(cuMemAlloc_v2(&p, 4), CUDA_SUCCESS);
	for (unsigned i = 0; i < 5000; i++) {
		EQUAL(cuMemsetD32_v2(p, i, 1), CUDA_SUCCESS);
		EQUAL(cuMemcpyDtoH_v2(&got, p, 4), CUDA_SUCCESS);
		EQUAL(got, i);
	}
	EQUAL(atomic_load(&carried), before);
}

/* Without the file everything goes over the socket, also what is much. */
static void by_socket(void)
{
	serve_with(NULL, NULL);
	start_network();
	atomic_store(&cut_after, LONG_MAX);
	begin();
	work(500);
	CHECK(atomic_load(&carried) > 2 * (long)LARGE);
	EQUAL(atomic_load(&cuts), 0);
}

static _Atomic int stop_cutting;

static void *cut_again(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop_cutting)) {
		int frames = atomic_load(&launched);
		if (cut_links())
			atomic_fetch_add(&cuts, 1);
		while (!atomic_load(&stop_cutting) && atomic_load(&launched) - frames < 37)
			sched_yield();
	}
	return NULL;
}

/* The socket beside the memory is cut again and again, wherever both sides are: nothing is lost, nothing runs twice. */
static void shared_breaks(void)
{
	CUdeviceptr p, q;
	CUfunction add;
	int64_t got = 0;
	int n = 1;
	void *params[] = {&p, &q, &n};
	pthread_t t;

	serve_with(NULL, NULL);
	with_files = true;
	start_network();
	begin();
	add = kernel("add");
	EQUAL(cuMemAlloc_v2(&p, 8), CUDA_SUCCESS);
	EQUAL(cuMemAlloc_v2(&q, 8), CUDA_SUCCESS);
	EQUAL(cuMemsetD8_v2(p, 0, 8), CUDA_SUCCESS);
	EQUAL(cuMemcpyHtoD_v2(q, &(int64_t){1}, 8), CUDA_SUCCESS);
	CHECK(pthread_create(&t, NULL, cut_again, NULL) == 0);
	for (int i = 1; i <= 3000 || atomic_load(&cuts) < 20; i++) {
		EQUAL(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
		atomic_fetch_add(&launched, 1);
		if (i % 10 == 0) {
			EQUAL(cuMemcpyDtoH_v2(&got, p, 8), CUDA_SUCCESS);
			EQUAL(got, i);
		}
	}
	atomic_store(&stop_cutting, 1);
	CHECK(pthread_join(t, NULL) == 0);
}

/* A server that is killed is noticed, also by who sleeps beside the memory. */
static void shared_end(void)
{
	CUcontext ctx;
	pthread_t t;

	serve_with(NULL, NULL);
	begin();
	EQUAL(cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	kernel("spin");
	CHECK(pthread_create(&t, NULL, sleep_beside, ctx) == 0);
	while (!atomic_load(&arrived))
		sched_yield();
	CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
	serve_with(NULL, NULL); /* another one knows nothing of the session */
	CHECK(pthread_join(t, NULL) == 0);
	EQUAL(cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

/* ---- ends ---- */

static uint64_t used_on_card(void)
{
	uint64_t sum = 0;
	char path[512];
	static struct stub_card c;
	int fd;
	ssize_t n;

	snprintf(path, sizeof path, "%s/card", check_root);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	n = read(fd, &c, sizeof c);
	close(fd);
	for (int i = 0; n == (ssize_t)sizeof c && i < STUB_PROCESSES; i++)
		if (c.pid[i] && (kill((pid_t)c.pid[i], 0) == 0 || errno != ESRCH))
			sum += c.used[i][0];
	return sum;
}

static pid_t program(int *ready)
{
	int p[2];
	char c;
	pid_t pid;

	CHECK(pipe(p) == 0);
	pid = fork();
	if (pid == 0) {
		CUdeviceptr d;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		begin();
		EQUAL(cuMemAlloc_v2(&d, 64 << 20), CUDA_SUCCESS);
		CHECK(write(p[1], "x", 1) == 1);
		pause();
	}
	close(p[1]);
	*ready = read(p[0], &c, 1) == 1;
	close(p[0]);
	return pid;
}

/* A process that is killed loses what it had once it has been away for the time that it may come back. */
static void killed(void)
{
	int ready, status;
	pid_t pid;

	serve_with("--resume-seconds", "1");
	pid = program(&ready);
	CHECK(ready && used_on_card() >= 64 << 20);
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
	while (used_on_card())
		usleep(1000);
}

/* No more processes than the server allows; one that has ended makes space at once. */
static void processes(void)
{
	int ready, status;
	pid_t first, second;

	serve_with("--processes", "1");
	first = program(&ready);
	CHECK(ready);
	second = fork();
	if (second == 0)
		_exit(cuInit(0) == CUDA_ERROR_NO_DEVICE ? 0 : 1);
	CHECK(waitpid(second, &status, 0) == second);
	EQUAL(status, 0);
	CHECK(kill(first, SIGKILL) == 0 && waitpid(first, &status, 0) == first);
}

/* A child that was forked after its parent had begun begins a session of its own, and has nothing of its parent's. */
static void forked(void)
{
	CUcontext ctx;
	int status;
	pid_t pid;

	serve_with(NULL, NULL);
	begin();
	CHECK(kernel("add") != kernel("spin"));
	pid = fork();
	if (pid == 0) {
		int64_t got = 0;
		CUdeviceptr p;
		CUmodule mod;
		CUfunction f;
		char a = 5;
		short b = 300;
		void *params[] = {&a, &p, &b};
		EQUAL(cuMemAlloc_v2(&p, 8), CUDA_ERROR_NOT_INITIALIZED);
		EQUAL(cuInit(0), CUDA_SUCCESS);
		EQUAL(cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
		CHECK(!ctx);
		begin();
		EQUAL(cuMemAlloc_v2(&p, 8), CUDA_SUCCESS);
		EQUAL(cuModuleLoadData(&mod, ".version 8.0"), CUDA_SUCCESS);
		EQUAL(cuModuleGetFunction(&f, mod, "store"), CUDA_SUCCESS); /* the server gives it the number that add has */
		EQUAL(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
		EQUAL(cuMemcpyDtoH_v2(&got, p, 8), CUDA_SUCCESS);
		EQUAL(got, 305);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	EQUAL(status, 0);
	work(200);
}

/* Without its server every call fails, loudly and for good; with none at all there is no card. */
static void lost(void)
{
	CUdeviceptr p;

	address_is("nobody");
	EQUAL(cuInit(0), CUDA_ERROR_NO_DEVICE);
	serve_with(NULL, NULL);
	begin();
	CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
	serve_with(NULL, NULL); /* another one knows nothing of the session */
	EQUAL(cuMemAlloc_v2(&p, 4096), CUDA_ERROR_DEVICE_UNAVAILABLE);
	EQUAL(cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
	EQUAL(cuInit(0), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

MAIN(T(calls), T(variables), T(lookup), T(programs), T(many), T(waiting), T(threads), T(breaks), T(wide), T(wide_breaks), T(shared), T(by_socket), T(shared_breaks), T(shared_end), T(killed), T(processes), T(forked), T(lost))
