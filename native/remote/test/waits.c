/* A program that waits: it calls nothing for a while, or its server is moved off the card and holds its calls. The network is cut meanwhile. */
#include <dirent.h>
#include <sched.h>
#include "network.h"
#include "work.h"
#include "../../cuda/system.h"

static void await_connections(int n)
{
	while (atomic_load(&connections) < n)
		sched_yield();
}

/* ---- a program that calls nothing ---- */

static void call_nothing(void)
{
	CUdeviceptr p;
	unsigned got = 0;

	serve_with(NULL, NULL);
	start_network();
	atomic_store(&cut_after, LONG_MAX);
	begin();
	EQUAL(cuMemAlloc_v2(&p, 4), CUDA_SUCCESS);
	for (unsigned i = 1; i <= 3; i++) {
		EQUAL(cuMemsetD32_v2(p, i, 1), CUDA_SUCCESS);
		EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
		int before = atomic_load(&connections);
		CHECK(cut_links());
		await_connections(before + 1); /* its server would end the session after a time */
		EQUAL(cuMemcpyDtoH_v2(&got, p, 4), CUDA_SUCCESS);
		EQUAL(got, i);
	}
}

static void quiet(void) { call_nothing(); }

static void quiet_beside(void)
{
	with_files = true;
	call_nothing();
}

/* ---- a server off the card ---- */

static void file(const char *path, const char *text, off_t size)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof full, "%s%s", check_root, path);
	f = fopen(full, "w");
	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0 && (!size || truncate(full, size) == 0));
}

/* A server under the library, in a container that can be moved. */
static void serve_movable(void)
{
	static char preload[512];

	for (const char **path = (const char *[]){"/etc", "/etc/elastic-gpu", "/etc/elastic-gpu/turns", "/run", "/run/elastic-gpu", "/run/elastic-gpu-requests", NULL}; *path; path++)
		folder(*path);
	for (int i = 0; i < 2; i++) {
		char turns[96], requests[96];
		snprintf(turns, sizeof turns, "/etc/elastic-gpu/turns/GPU-11111111-1111-1111-1111-11111111112%d", i);
		snprintf(requests, sizeof requests, "/run/elastic-gpu-requests/GPU-11111111-1111-1111-1111-11111111112%d", i);
		file(turns, "", 6208);
		file(requests, "", 10304);
	}
	file("/etc/elastic-gpu/limits", "elastic-gpu 1\ncontainer test\nswap on\ncontrol any\ndevice * memory 1000000000\n", 0);
	snprintf(preload, sizeof preload, "%s/libelasticgpu.so", getenv("STUB_LIBRARY"));
	server_preloads = preload;
	setenv("REMOTE_SERVER", getenv("PLAIN_SERVER"), 1); /* the sanitizers' must be the first library */
	serve_with(NULL, NULL);
}

/* Asks the server's process of the session what the node's agent does, and returns what it says. */
static const char *ask_server(const char *request)
{
	static char reply[8192];
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	char path[300];
	size_t n = 0;
	ssize_t got;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	DIR *d;

	snprintf(path, sizeof path, "%s/run/elastic-gpu/control", check_root);
	CHECK((d = opendir(path)));
	for (struct dirent *e; (e = readdir(d));)
		if (strstr(e->d_name, ".sock"))
			snprintf(at.sun_path, sizeof at.sun_path, "%s/%s", path, e->d_name);
	closedir(d);
	CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && write(fd, request, strlen(request)) > 0);
	while ((got = read(fd, reply + n, sizeof reply - 1 - n)) > 0)
		n += (size_t)got;
	reply[n] = 0;
	close(fd);
	return reply;
}

enum { AWAY_MS = 2000 };
static _Atomic int arrived, called_in;

/* Agents begin anew, both and more than once, while a server is off the card; then it comes back. */
static void *begin_anew(void *unused)
{
	(void)unused;
	while (!atomic_load(&arrived))
		sched_yield();
	for (int i = 0; i < 2; i++) {
		int before = atomic_load(&connections);
		CHECK(cut_links());
		await_connections(before + 1);
		for (int64_t until = now_ns() + (AWAY_MS + AWAY_MS / 4) * MS; now_ns() < until;)
			sleep_ns(10 * MS); /* longer than a program may be away */
	}
	atomic_store(&called_in, 1);
	CHECK(!strncmp(ask_server("in\n"), "{\"ok\":true", 10));
	return NULL;
}

/* The calls of a program wait for as long as its server is off the card, and go on after, whatever becomes of the network: what
 * ends a session is that nobody is there, not that somebody waits. */
static void held(void)
{
	CUdeviceptr p;
	unsigned got = 0;
	pthread_t t;

	setenv("ELASTICGPU_AWAY_MS", "2000", 1);
	serve_movable();
	start_network();
	atomic_store(&cut_after, LONG_MAX);
	begin();
	EQUAL(cuMemAlloc_v2(&p, 64 << 20), CUDA_SUCCESS);
	EQUAL(cuMemsetD32_v2(p, 7, 1), CUDA_SUCCESS);
	EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK(!strncmp(ask_server("out\n"), "{\"ok\":true", 10));
	CHECK(pthread_create(&t, NULL, begin_anew, NULL) == 0);
	atomic_store(&arrived, 1);
	EQUAL(cuMemcpyDtoH_v2(&got, p, 4), CUDA_SUCCESS); /* the program has one thread: its server reads nothing else meanwhile */
	EQUAL(atomic_load(&called_in), 1);
	EQUAL(got, 7);
	CHECK(pthread_join(t, NULL) == 0);
	work(100);
}

static void held_beside(void)
{
	with_files = true;
	held();
}

MAIN(T(quiet), T(quiet_beside), T(held), T(held_beside))
