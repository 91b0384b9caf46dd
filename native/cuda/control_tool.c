/*
 * elastic-gpu-ctl: one request to a process under the library, or the driver's own checkpoint of one that is not.
 *
 *   elastic-gpu-ctl SOCKET hello 1 | stats | limits | prepare BYTES | out [BYTES] | in
 *   elastic-gpu-ctl checkpoint out|in PID
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "driver_types.h"

static int usage(void)
{
	fprintf(stderr, "usage: elastic-gpu-ctl SOCKET REQUEST...\n       elastic-gpu-ctl checkpoint out|in PID\n");
	return 2;
}

static int ask(const char *path, int words, char **word)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char text[256] = "", reply[8192];
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	size_t n = 0;
	ssize_t got;

	for (int i = 0; i < words; i++) {
		strncat(text, word[i], sizeof text - strlen(text) - 2);
		strcat(text, i + 1 < words ? " " : "\n");
	}
	if (strlen(path) >= sizeof a.sun_path)
		return usage();
	strcpy(a.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0 || write(fd, text, strlen(text)) < 0) {
		perror(path);
		return 1;
	}
	while (n < sizeof reply - 1 && (got = read(fd, reply + n, sizeof reply - 1 - n)) > 0)
		n += (size_t)got;
	reply[n] = 0;
	fputs(reply, stdout);
	return strncmp(reply, "{\"ok\":true", 10) ? 1 : 0;
}

typedef CUresult (*checkpoint_fn)(int pid, void *args);

static int checkpoint_step(void *cuda, const char *name, int pid, void *args)
{
	checkpoint_fn fn = (checkpoint_fn)dlsym(cuda, name);
	CUresult r = fn ? fn(pid, args) : CUDA_ERROR_NOT_FOUND;

	if (r != CUDA_SUCCESS)
		fprintf(stderr, "%s: the driver answered %d\n", name, r);
	return r == CUDA_SUCCESS;
}

/* Locked: no new work; checkpointed: its memory is on the host. The way back in the other order. */
static int checkpoint(const char *way, int pid)
{
	struct timespec begin, end;
	struct { unsigned timeout_ms, reserved0; uint64_t reserved[7]; } lock = {30000, 0, {0}};
	uint64_t none[8] = {0};
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult (*init)(unsigned) = cuda ? (CUresult (*)(unsigned))dlsym(cuda, "cuInit") : NULL;
	int ok;

	if (!init || init(0) != CUDA_SUCCESS) {
		fprintf(stderr, "no CUDA driver\n");
		return 1;
	}
	clock_gettime(CLOCK_MONOTONIC, &begin);
	if (!strcmp(way, "out")) {
		ok = checkpoint_step(cuda, "cuCheckpointProcessLock", pid, &lock);
		if (ok && !checkpoint_step(cuda, "cuCheckpointProcessCheckpoint", pid, none)) {
			checkpoint_step(cuda, "cuCheckpointProcessUnlock", pid, none);
			ok = 0;
		}
	} else {
		ok = checkpoint_step(cuda, "cuCheckpointProcessRestore", pid, none) &&
			checkpoint_step(cuda, "cuCheckpointProcessUnlock", pid, none);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	if (ok)
		printf("{\"ok\":true,\"total_s\":%.3f}\n", (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
	return !ok;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "checkpoint") && (!strcmp(argv[2], "out") || !strcmp(argv[2], "in")))
		return checkpoint(argv[2], atoi(argv[3]));
	if (argc < 3)
		return usage();
	return ask(argv[1], argc - 2, argv + 2);
}
