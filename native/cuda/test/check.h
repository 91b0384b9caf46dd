/* Each test has a container of its own: limits file, card, and the folders that the agent makes. */
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../arbiter.h"
#include "../card_turns.h"
#include "../compute_limit.h"
#include "../constants.h"
#include "../container_file.h"
#include "../control_socket.h"
#include "../driver_symbols.h"
#include "../ipc_imports.h"
#include "../libc_symbols.h"
#include "../limits_file.h"
#include "../memory_budget.h"
#include "../overhead.h"
#include "../paths.h"
#include "../pools.h"
#include "../power_price.h"
#include "../request_reader.h"
#include "../session.h"
#include "../shared_file.h"
#include "../start.h"
#include "../streams.h"
#include "../swap.h"
#include "../system.h"
#include "../turn_files.h"
#include "stub.h"

#include "runner.h"

/* Waits for what comes by itself; a busy machine has a minute for it. */
#define UNTIL(cond) do { \
	for (int64_t end_ = now_ns() + 60000 * MS; !(cond); sleep_ns(MS)) \
		if (now_ns() > end_) { \
			fprintf(stderr, "%s:%d: not within a minute: %s\n", __FILE__, __LINE__, #cond); \
			_exit(1); \
		} \
} while (0)

static void check_write(const char *path, const char *text)
{
	char full[512], temporary[520];
	snprintf(full, sizeof full, "%s%s", check_root, path);
	snprintf(temporary, sizeof temporary, "%s.new", full);
	FILE *f = fopen(temporary, "w");
	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0 && rename(temporary, full) == 0);
}

static void check_limits(const char *extra, const char *device)
{
	char text[1024];
	snprintf(text, sizeof text, "elastic-gpu 1\ncontainer test\ncontrol any\n%s%s\n", extra, device);
	check_write("/etc/elastic-gpu/limits", text);
}

static void check_folder(const char *root, const char *path)
{
	char full[512];
	snprintf(full, sizeof full, "%s%s", root, path);
	CHECK(mkdir(full, 0777) == 0 || errno == EEXIST);
}

static void check_file(const char *root, const char *folder, int dev, size_t size)
{
	char path[600];
	unsigned char id[16];
	int fd;

	stub_uuid(dev, id);
	snprintf(path, sizeof path, "%s%s/GPU-11111111-1111-1111-1111-1111111111%02x", root, folder, id[15]);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0 && close(fd) == 0);
}

/* The folders of a container below a root as the agent makes them, and where the node's arbiter finds them. */
static void check_share(const char *root, const char *id)
{
	static const char *const dirs[] = {"", "/etc", "/etc/elastic-gpu", "/etc/elastic-gpu/turns", "/run", "/run/elastic-gpu", "/run/elastic-gpu-requests"};
	char path[600], to[600];

	for (unsigned i = 0; i < sizeof dirs / sizeof *dirs; i++)
		check_folder(root, dirs[i]);
	for (int dev = 0; dev < 4; dev++) {
		check_file(root, "/etc/elastic-gpu/turns", dev, sizeof(struct decision_file));
		check_file(root, "/run/elastic-gpu-requests", dev, sizeof(struct request_file));
	}
	check_folder(check_root, "/node");
	check_folder(check_root, "/node/shares");
	snprintf(path, sizeof path, "/node/shares/%s", id);
	check_folder(check_root, path);
	snprintf(path, sizeof path, "%s/node/shares/%s/etc", check_root, id);
	snprintf(to, sizeof to, "%s/etc/elastic-gpu", root);
	CHECK(symlink(to, path) == 0);
	snprintf(path, sizeof path, "%s/node/shares/%s/requests", check_root, id);
	snprintf(to, sizeof to, "%s/run/elastic-gpu-requests", root);
	CHECK(symlink(to, path) == 0);
}

static void check_container(void)
{
	char path[512];

	check_share(check_root, "0");
	snprintf(path, sizeof path, "%s/card", check_root);
	setenv("ELASTICGPU_ROOT", check_root, 1);
	setenv("STUB_CARD", path, 1);
}

static void test_begins(void) { check_container(); }

/* Starts a child that runs body and exits 0; the parent gets its pid. */
#define CHILD(pid, body) do { fflush(NULL); pid = fork(); CHECK(pid >= 0); if (pid == 0) { body; _exit(0); } } while (0)
/* The node's arbiter, until the test ends or stops it. */
static inline pid_t check_arbiter(void)
{
	char path[512];
	pid_t pid;

	snprintf(path, sizeof path, "%s/node", check_root);
	CHILD(pid, { prctl(PR_SET_PDEATHSIG, SIGKILL); arbiter_run(path); _exit(1); });
	return pid;
}
static inline void check_stop(pid_t pid)
{
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}
static inline void check_exit(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	EQUAL(status, 0);
}
#endif
