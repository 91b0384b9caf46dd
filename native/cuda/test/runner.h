/* Each test is a process group of its own, with a folder of its own; both end with it. */
#ifndef RUNNER_H
#define RUNNER_H
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(cond) do { if (!(cond)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); _exit(1); } } while (0)
#define EQUAL(a, b) do { long long a_ = (long long)(a), b_ = (long long)(b); if (a_ != b_) { \
	fprintf(stderr, "%s:%d: %s is %lld, want %s = %lld\n", __FILE__, __LINE__, #a, a_, #b, b_); _exit(1); } } while (0)

static char check_root[256];

static void test_begins(void); /* makes what a test needs below check_root */

struct test { const char *name; void (*run)(void); };

/* Runs the tests, or those named; returns the number that failed. */
static int check_main(int argc, char **argv, const struct test *tests, int n)
{
	int failed = 0;

	for (int i = 0; i < n; i++) {
		char command[600];
		siginfo_t ended;
		int status, wanted = argc < 2;
		for (int a = 1; a < argc; a++)
			wanted |= !strcmp(argv[a], tests[i].name);
		if (!wanted)
			continue;
		snprintf(check_root, sizeof check_root, "/tmp/elastic-gpu-test-XXXXXX"); /* never a pid: those come again */
		CHECK(mkdtemp(check_root) && !chmod(check_root, 0777));
		fflush(NULL);
		pid_t pid = fork();
		if (pid == 0) {
			alarm(600); /* a hang is a failure; a busy machine is none */
			setpgid(0, 0);
			prctl(PR_SET_PDEATHSIG, SIGKILL); /* Ctrl-C reaches the group of the runner alone */
			test_begins();
			tests[i].run();
			exit(0);
		}
		CHECK(pid > 0 && waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT) == 0);
		kill(-pid, SIGKILL); /* what it left running would write into the folder while that is removed */
		CHECK(waitpid(pid, &status, 0) == pid);
		snprintf(command, sizeof command, "rm -rf %s", check_root);
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

#endif
