/* A network that is slow, and one that is cut at each byte of what a program and its server say. */
#include "network.h"
#include "work.h"

/* ---- slow ---- */

/* A program through a relay that holds everything back for 0.2 ms each way: its results are right, and it ends. */
static void delayed(void)
{
	char from[512], to[512];

	serve_with(NULL, NULL);
	snprintf(from, sizeof from, "unix:%s/slow", check_root);
	snprintf(to, sizeof to, "unix:%s/server", check_root);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(getenv("REMOTE_DELAY"), "delay", from, to, "200", NULL);
		_exit(1);
	}
	close(connect_to("slow"));
	address_is("slow");
	begin();
	work(200);
}

/* ---- cut ---- */

enum way { TO_SERVER, TO_PROGRAM };
static _Atomic long left[2], left_then[2]; /* bytes each way that this connection still carries, and the next one will */
static _Atomic long bytes_of[2];

static bool cut_here(enum way way, long n)
{
	atomic_fetch_add(&bytes_of[way], n);
	if (atomic_load(&left[way]) == LONG_MAX || atomic_fetch_sub(&left[way], n) > n)
		return false;
	for (int i = 0; i < 2; i++)
		atomic_store(&left[i], atomic_exchange(&left_then[i], LONG_MAX));
	atomic_fetch_add(&cuts, 1);
	return true;
}

/* Carries bytes of both ways, and not one more than it may. */
static void carry_until_cut(const int *fd)
{
	char bytes[4096];

	for (;;) {
		struct pollfd p[] = {{.fd = fd[0], .events = POLLIN}, {.fd = fd[1], .events = POLLIN}};
		CHECK(poll(p, 2, -1) > 0);
		for (int way = 0; way < 2; way++) {
			if (!p[way].revents)
				continue;
			long most = atomic_load(&left[way]);
			ssize_t n = read(fd[way], bytes, most < (long)sizeof bytes ? (size_t)most : sizeof bytes);
			if (n <= 0)
				return;
			bool cut = cut_here(way, n); /* who gets the bytes may set the next cut at once */
			if (!socket_write(fd[!way], bytes, (size_t)n) || cut)
				return;
		}
	}
}

static void *relay(void *arg)
{
	int fd[2];

	for (;;) {
		fd[0] = accept(*(int *)arg, NULL, NULL);
		fd[1] = connect_to("server");
		CHECK(fd[0] >= 0);
		carry_until_cut(fd);
		close(fd[0]);
		close(fd[1]);
	}
	return NULL;
}

static void start_relay(void)
{
	static int listener;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	pthread_t t;

	for (int way = 0; way < 2; way++)
		left[way] = left_then[way] = LONG_MAX;
	snprintf(at.sun_path, sizeof at.sun_path, "%s/network", check_root);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 8) == 0);
	address_is("network");
	CHECK(pthread_create(&t, NULL, relay, &listener) == 0);
}

static CUfunction kernel_add;

/* Calls of all kinds: that need no answer and that wait, with handles of either side, copies, launches, an error that shows later. */
static void talk(void)
{
	int64_t got = 0;
	CUdeviceptr sum, one;
	CUstream stream;
	CUevent event;
	size_t before, after, total;
	int n = 1;
	void *params[] = {&sum, &one, &n};

	EQUAL(cuMemGetInfo_v2(&before, &total), CUDA_SUCCESS);
	EQUAL(cuMemAlloc_v2(&sum, 8), CUDA_SUCCESS);
	EQUAL(cuMemAlloc_v2(&one, 8), CUDA_SUCCESS);
	EQUAL(cuMemsetD8_v2(sum, 0, 8), CUDA_SUCCESS);
	EQUAL(cuMemcpyHtoD_v2(one, &(int64_t){1}, 8), CUDA_SUCCESS);
	EQUAL(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
	EQUAL(cuEventCreate(&event, 0), CUDA_SUCCESS);
	EQUAL(cuLaunchKernel(kernel_add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL), CUDA_SUCCESS);
	EQUAL(cuEventRecord(event, stream), CUDA_SUCCESS);
	EQUAL(cuEventSynchronize(event), CUDA_SUCCESS);
	EQUAL(cuLaunchKernel(kernel_add, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
	EQUAL(cuMemcpyDtoH_v2(&got, sum, 8), CUDA_SUCCESS);
	EQUAL(got, 2); /* each launch once */
	EQUAL(cuEventDestroy_v2(event), CUDA_SUCCESS);
	EQUAL(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
	EQUAL(cuMemFree_v2(sum), CUDA_SUCCESS);
	EQUAL(cuMemsetD8_v2(sum, 0, 8), CUDA_SUCCESS);
	EQUAL(cuMemFree_v2(one), CUDA_SUCCESS);
	EQUAL(cuCtxSynchronize(), CUDA_ERROR_INVALID_VALUE);
	EQUAL(cuMemGetInfo_v2(&after, &total), CUDA_SUCCESS);
	EQUAL(after, before); /* and so each allocation */
}

static void begin_to_talk(long *size)
{
	serve_with(NULL, NULL);
	start_relay();
	begin();
	kernel_add = kernel("add");
	talk();
	for (int way = 0; way < 2; way++)
		atomic_store(&bytes_of[way], 0);
	talk();
	for (int way = 0; way < 2; way++)
		CHECK((size[way] = atomic_load(&bytes_of[way])) > 200);
}

static void talk_and_be_cut(int times)
{
	int before = atomic_load(&cuts);

	talk();
	EQUAL(atomic_load(&cuts), before + times);
}

/* The connection is cut after each byte that goes to the server, and after each that comes back: before, in and after each frame. */
static void every_byte(void)
{
	long size[2];

	begin_to_talk(size);
	for (int way = 0; way < 2; way++)
		for (long at = 1; at <= size[way]; at++) {
			atomic_store(&left[way], at);
			talk_and_be_cut(1);
		}
}

/* The connection that takes its place is cut, too: in what both say first, and in what is sent again. */
static void every_byte_again(void)
{
	long size[2];

	begin_to_talk(size);
	for (int way = 0; way < 2; way++)
		for (long at = 1; at <= (long)sizeof(struct hello) + size[way] / 2; at++) {
			atomic_store(&left_then[way], at);
			atomic_store(&left[at % 2], size[at % 2] / 3);
			talk_and_be_cut(2);
		}
}

MAIN(T(delayed), T(every_byte), T(every_byte_again))
