/*
 * What a program in a container sees of its cards, as one line of JSON: through the driver's functions as any program
 * calls them, and through the library's own socket. Then it ends, or with "stay" waits until it is told to, with so
 * many MiB allocated, and with "work" launches kernels until then. With "hostile" it does first what it can to its node by the folder that it may write to.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef int (*init_fn)(unsigned);
typedef int (*count_fn)(int *);
typedef int (*get_fn)(int *, int);
typedef int (*total_fn)(size_t *, int);
typedef int (*alloc_fn)(unsigned long long *, size_t);
typedef int (*context_fn)(void **, int);
typedef int (*current_fn)(void *);
typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

/* The largest block of whole MiB that is granted, found by halving. */
static size_t largest(alloc_fn alloc, int (*give)(unsigned long long), size_t most)
{
	size_t low = 0, high = most + 1;
	while (low + 1 < high) {
		size_t middle = (low + high) / 2;
		unsigned long long at = 0;
		if (alloc(&at, middle << 20) == 0) {
			give(at);
			low = middle;
		} else {
			high = middle;
		}
	}
	return low;
}

static void stats(char *reply, size_t size)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	size_t n = 0;
	ssize_t got;

	snprintf(a.sun_path, sizeof a.sun_path, "/run/elastic-gpu/control/%d.sock", (int)getpid());
	if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && write(fd, "stats\n", 6) == 6)
		while (n < size - 1 && (got = read(fd, reply + n, size - 1 - n)) > 0)
			n += (size_t)got;
	reply[n] = 0;
	reply[strcspn(reply, "\n")] = 0;
	close(fd);
}

/* How many MiB of 64 can be written to the library's folder. */
static int fill(void)
{
	static char mib[1 << 20];
	FILE *f = fopen("/run/elastic-gpu/fill", "w");
	int n = 0;

	while (f && n < 64 && fwrite(mib, sizeof mib, 1, f) == 1)
		n++;
	if (f)
		fclose(f);
	unlink("/run/elastic-gpu/fill");
	return n;
}

/* A socket that takes connections and never answers, under as many of 4,000 names as there can be. */
static int silence(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/run/elastic-gpu/control/1000000.sock"};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), n = 0;
	char name[100];

	if (bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 4096) != 0)
		return -1;
	while (n < 4000) {
		snprintf(name, sizeof name, "/run/elastic-gpu/control/%d.sock", 1000001 + n);
		if (link(a.sun_path, name) != 0)
			break;
		n++;
	}
	return n;
}

/* Launches kernels, one after the other, until it is told to end. */
static void work(void *lib, const sigset_t *end)
{
	struct { long long ns; void (*body)(void **); } kernel = {200000, NULL}; /* as the tests' driver knows it */
	launch_fn launch = (launch_fn)dlsym(lib, "cuLaunchKernel");
	int (*synchronize)(void) = (int (*)(void))dlsym(lib, "cuCtxSynchronize");
	struct timespec now = {0, 0};

	while (launch(&kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0 && synchronize() == 0)
		if (sigtimedwait(end, NULL, &now) > 0)
			return;
}

int main(int argc, char **argv)
{
	int filled = 0, sockets = 0, hostile = argc > 1 && !strcmp(argv[1], "hostile");
	char reply[8192];
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
	int cards = 0, dev = 0;
	size_t total = 0, most = 0;

	if (!lib) {
		printf("{\"error\":\"%s\"}\n", dlerror());
		return 1;
	}
	int failed = ((init_fn)dlsym(lib, "cuInit"))(0);
	if (failed) {
		printf("{\"error\":\"cuInit answers %d\"}\n", failed);
		return 1;
	}
	((count_fn)dlsym(lib, "cuDeviceGetCount"))(&cards);
	((get_fn)dlsym(lib, "cuDeviceGet"))(&dev, 0);
	((total_fn)dlsym(lib, "cuDeviceTotalMem_v2"))(&total, dev);
	((context_fn)dlsym(lib, "cuDevicePrimaryCtxRetain"))(&context, dev);
	((current_fn)dlsym(lib, "cuCtxSetCurrent"))(context);
	most = largest((alloc_fn)dlsym(lib, "cuMemAlloc_v2"), (int (*)(unsigned long long))dlsym(lib, "cuMemFree_v2"), total >> 20);
	if (argc > 2) {
		unsigned long long at = 0;
		if (((alloc_fn)dlsym(lib, "cuMemAlloc_v2"))(&at, (size_t)atoi(argv[2]) << 20) != 0) {
			printf("{\"error\":\"%s MiB are not granted\"}\n", argv[2]);
			return 1;
		}
	}
	stats(reply, sizeof reply);
	if (hostile) {
		filled = fill();
		sockets = silence();
	}
	const char *backend = getenv("ELASTIC_GPU_BACKEND");
	printf("{\"cards\":%d,\"totalMB\":%zu,\"largestMB\":%zu,\"backend\":\"%s\",\"filledMB\":%d,\"sockets\":%d,\"stats\":%s}\n", cards,
		total >> 20, most, backend ? backend : "", filled, sockets, *reply ? reply : "null");
	fflush(stdout);
	sigset_t end;
	int which;
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigprocmask(SIG_BLOCK, &end, NULL);
	if (hostile || (argc > 1 && !strcmp(argv[1], "stay")))
		sigwait(&end, &which);
	else if (argc > 1 && !strcmp(argv[1], "work"))
		work(lib, &end);
	return 0;
}
