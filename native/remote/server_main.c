/*
 * elastic-gpu-remote ADDRESS [--processes N] [--resume-seconds S]: lets programs of one container use this node's cards.
 * It runs in a container of its own, under the library and with the limits of the claim that it is for. Each process of the
 * program has a process here; one that is away may come back within some seconds, to the same.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "address.h"
#include "log.h"
#include "pass.h"
#include "server.h"

#define MOST_PROCESSES 256

static struct process { pid_t pid; int control; unsigned char id[16]; } processes[MOST_PROCESSES];
static int most = 64, resume_seconds = 30;
static volatile sig_atomic_t ended;

static void on_end(int signal) { (void)signal; ended = 1; }

static void reap(void)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		for (int i = 0; i < most; i++)
			if (processes[i].pid == pid) {
				close(processes[i].control);
				processes[i] = (struct process){0};
			}
}

static void refuse(int fd, uint64_t why)
{
	struct hello answer = {.version = REMOTE_VERSION, .refused = why};
	socket_write(fd, &answer, sizeof answer);
}

static void begin(int listener, int fd, const struct hello *h)
{
	static const struct timeval forever = {0};
	struct process *p = NULL;
	int pair[2];

	for (int i = 0; i < most && !p; i++)
		if (!processes[i].pid)
			p = &processes[i];
	if (!p || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0 || getrandom(p->id, sizeof p->id, 0) != sizeof p->id) {
		refuse(fd, REFUSED_PROCESSES);
		return;
	}
	p->control = pair[0];
	p->pid = fork();
	if (p->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGTERM, SIG_DFL);
		signal(SIGINT, SIG_DFL);
		close(listener);
		close(pair[0]);
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
		if (!driver_load()) {
			refuse(fd, REFUSED_SESSION);
			_exit(1);
		}
		_exit(session_run(fd, pair[1], h, p->id, resume_seconds));
	}
	close(pair[1]);
	if (p->pid < 0) {
		close(pair[0]);
		*p = (struct process){0};
		refuse(fd, REFUSED_PROCESSES);
	}
}

static void welcome(int listener, int fd)
{
	static const unsigned char none[16];
	static const struct timeval moment = {.tv_sec = 1};
	struct hello h;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
	if (!socket_read(fd, &h, sizeof h))
		return;
	if (h.version != REMOTE_VERSION) {
		refuse(fd, REFUSED_VERSION);
		return;
	}
	if (!memcmp(h.session, none, sizeof none)) {
		begin(listener, fd, &h);
		return;
	}
	for (int i = 0; i < most; i++)
		if (processes[i].pid && !memcmp(processes[i].id, h.session, sizeof h.session)) {
			static const struct timeval forever = {0};
			setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
			pass_send(processes[i].control, fd, &h);
			return;
		}
	refuse(fd, REFUSED_SESSION);
}

static int listen_at(const char *words)
{
	struct sockaddr_storage at;
	socklen_t size = address_read(words, &at);
	int on = 1, fd = size ? socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;

	if (fd < 0) {
		fprintf(stderr, "%s is no address: unix:PATH or tcp:IP:PORT\n", words);
		return -1;
	}
	if (at.ss_family == AF_UNIX)
		unlink(((struct sockaddr_un *)&at)->sun_path);
	else
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (struct sockaddr *)&at, size) != 0 || listen(fd, 64) != 0) {
		perror(words);
		return -1;
	}
	return fd;
}

static int number(const char *text, int least, int greatest)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (*end || n < least || n > greatest) {
		fprintf(stderr, "%s is not between %d and %d\n", text, least, greatest);
		exit(2);
	}
	return (int)n;
}

int main(int argc, char **argv)
{
	int listener;

	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--processes") && i + 1 < argc)
			most = number(argv[++i], 1, MOST_PROCESSES);
		else if (!strcmp(argv[i], "--resume-seconds") && i + 1 < argc)
			resume_seconds = number(argv[++i], 0, 3600);
		else
			argc = 0;
	}
	if (argc < 2) {
		fprintf(stderr, "usage: elastic-gpu-remote unix:PATH|tcp:IP:PORT [--processes N] [--resume-seconds S]\n");
		return 2;
	}
	signal(SIGTERM, on_end);
	signal(SIGINT, on_end);
	signal(SIGPIPE, SIG_IGN);
	listener = listen_at(argv[1]);
	if (listener < 0)
		return 1;
	while (!ended) {
		struct pollfd p = {.fd = listener, .events = POLLIN};
		if (poll(&p, 1, 200) > 0) {
			int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
			if (fd >= 0) {
				welcome(listener, fd);
				close(fd);
			}
		}
		reap();
	}
	for (int i = 0; i < most; i++)
		if (processes[i].pid)
			kill(processes[i].pid, SIGKILL);
	return 0;
}
