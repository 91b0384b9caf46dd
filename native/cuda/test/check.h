/* Each test is a process of its own, with its own container: root directory, limits file, card. */
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../card_file.h"
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
#include "../session.h"
#include "../start.h"
#include "../streams.h"
#include "../swap.h"
#include "../system.h"
#include "stub.h"

#define CHECK(cond) do { if (!(cond)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); _exit(1); } } while (0)
#define EQUAL(a, b) do { long long a_ = (long long)(a), b_ = (long long)(b); if (a_ != b_) { \
	fprintf(stderr, "%s:%d: %s is %lld, want %s = %lld\n", __FILE__, __LINE__, #a, a_, #b, b_); _exit(1); } } while (0)

static char check_root[256];

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

static void check_container(void)
{
	static const char *const dirs[] = {"", "/etc", "/etc/elastic-gpu", "/run", "/run/elastic-gpu", "/run/elastic-gpu/cards"};
	char path[512];

	snprintf(check_root, sizeof check_root, "/tmp/elastic-gpu-test-%d", (int)getpid());
	for (unsigned i = 0; i < sizeof dirs / sizeof *dirs; i++) {
		snprintf(path, sizeof path, "%s%s", check_root, dirs[i]);
		CHECK(mkdir(path, 0777) == 0 || errno == EEXIST);
	}
	snprintf(path, sizeof path, "%s/card", check_root);
	setenv("ELASTICGPU_ROOT", check_root, 1);
	setenv("STUB_CARD", path, 1);
}

struct test { const char *name; void (*run)(void); };

/* Runs the tests, or those named; returns the number that failed. */
static int check_main(int argc, char **argv, const struct test *tests, int n)
{
	int failed = 0;

	for (int i = 0; i < n; i++) {
		char command[600];
		int status, wanted = argc < 2;
		for (int a = 1; a < argc; a++)
			wanted |= !strcmp(argv[a], tests[i].name);
		if (!wanted)
			continue;
		fflush(NULL);
		pid_t pid = fork();
		if (pid == 0) {
			alarm(600); /* a hang is a failure; a busy machine is none */
			check_container();
			tests[i].run();
			exit(0);
		}
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
		snprintf(command, sizeof command, "rm -rf /tmp/elastic-gpu-test-%d", (int)pid);
		if (system(command))
			failed++;
		if (status) {
			printf("FAIL %s (%s %d)\n", tests[i].name, WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
			failed++;
		}
	}
	printf("%s: %s\n", argv[0], failed ? "failed" : "ok");
	return failed != 0;
}
#define MAIN(...) int main(int argc, char **argv) { static const struct test tests[] = {__VA_ARGS__}; \
	return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests)); }
#define T(name) {#name, name}

/* Starts a child that runs body and exits 0; the parent gets its pid. */
#define CHILD(pid, body) do { fflush(NULL); pid = fork(); CHECK(pid >= 0); if (pid == 0) { body; _exit(0); } } while (0)
static inline void check_exit(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	EQUAL(status, 0);
}
#endif
