/*
 * A socket per process that shares memory, in a folder that only its container has. A message is one struct of a fixed
 * size; a descriptor travels beside it. Nothing is believed of a peer but that it is the process that the kernel says.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "constants.h"
#include "log.h"
#include "paths.h"
#include "peer_socket.h"
#include "shared_file.h"
#include "system.h"

static bool address(pid_t pid, struct sockaddr_un *a)
{
	memset(a, 0, sizeof *a);
	a->sun_family = AF_UNIX;
	return snprintf(a->sun_path, sizeof a->sun_path, "%s/%d", path_peers(), (int)pid) < (int)sizeof a->sun_path;
}

/* What processes left that were killed. */
static void sweep(int folder)
{
	int listing = fcntl(folder, F_DUPFD_CLOEXEC, 0);
	DIR *names = listing < 0 ? NULL : fdopendir(listing);
	struct dirent *e;

	while (names && (e = readdir(names))) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		if (pid > 0 && kill(pid, 0) < 0 && errno == ESRCH)
			unlinkat(folder, e->d_name, 0);
	}
	if (names)
		closedir(names);
	else if (listing >= 0)
		close(listing);
}

static const char *own_name(char *name, size_t size)
{
	snprintf(name, size, "%d", (int)getpid());
	return name;
}

int peer_listen(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), folder = shared_folder(path_peers());
	char name[16];
	bool ok;

	if (folder >= 0)
		sweep(folder);
	ok = fd >= 0 && folder >= 0 && shared_socket(fd, folder, own_name(name, sizeof name), true) && listen(fd, 64) == 0;
	if (!ok)
		log_error("%s: memory cannot be shared with other processes: %s", path_peers(), strerror(errno));
	if (folder >= 0)
		close(folder);
	if (!ok && fd >= 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

void peer_unlisten(void)
{
	int folder = shared_folder(path_peers());
	char name[16];

	if (folder < 0)
		return;
	unlinkat(folder, own_name(name, sizeof name), 0);
	close(folder);
}

static pid_t peer_of(int fd)
{
	struct ucred c = {0};
	socklen_t size = sizeof c;

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &size) == 0 ? c.pid : 0;
}

static bool readable(int fd, int64_t deadline)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int64_t left;
	int n;

	do {
		left = deadline - now_ns();
		n = poll(&p, 1, left > 0 ? (int)(left / MS) + 1 : 0);
	} while (n < 0 && errno == EINTR);
	return n > 0;
}

int peer_accept(int listener, struct peer_request *q, pid_t *from)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return -1;
	*from = peer_of(fd);
	if (*from > 0 && readable(fd, now_ns() + 1000 * MS) && recv(fd, q, sizeof *q, MSG_TRUNC) == (ssize_t)sizeof *q && q->version == PEER_VERSION)
		return fd;
	close(fd);
	return -1;
}

bool peer_reply(int fd, const struct peer_answer *a, int memory)
{
	union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {{0}};
	struct iovec data = {(void *)(uintptr_t)a, sizeof *a};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
	struct cmsghdr *c;

	if (memory >= 0) {
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof control.bytes;
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &memory, sizeof memory);
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *a;
}

int peer_ask(pid_t pid, const struct peer_request *q)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a;

	errno = fd >= 0 ? 0 : errno;
	if (fd >= 0 && address(pid, &a) && connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && peer_of(fd) == pid &&
	    send(fd, q, sizeof *q, MSG_NOSIGNAL) == (ssize_t)sizeof *q)
		return fd;
	if (fd >= 0) {
		int why = errno;
		close(fd);
		errno = why;
	}
	return -1;
}

bool peer_answered(int fd, struct peer_answer *a, int *memory, int64_t deadline)
{
	union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
	struct iovec data = {a, sizeof *a};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_LEN(sizeof(int))};
	struct cmsghdr *c;
	bool whole;

	*memory = -1;
	if (!readable(fd, deadline)) {
		errno = ETIMEDOUT;
		return false;
	}
	errno = ECONNRESET; /* unless there is an answer */
	whole = recvmsg(fd, &m, MSG_CMSG_CLOEXEC) == (ssize_t)sizeof *a && !(m.msg_flags & MSG_TRUNC);
	c = m.msg_controllen ? CMSG_FIRSTHDR(&m) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(memory, CMSG_DATA(c), sizeof *memory);
	if (!whole && *memory >= 0) {
		close(*memory);
		*memory = -1;
	}
	a->why[sizeof a->why - 1] = 0;
	return whole;
}

static bool thread_is(pid_t pid, const char *thread, const char *name)
{
	char path[300], is[32] = {0};
	int fd;

	snprintf(path, sizeof path, "/proc/%d/task/%s/comm", (int)pid, thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, is, sizeof is - 1) > 0)
		is[strcspn(is, "\n")] = 0;
	close(fd);
	return !strcmp(is, name);
}

bool peer_replaced(pid_t pid)
{
	struct dirent *e;
	bool found = false;
	char path[32];
	DIR *threads;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	threads = opendir(path);
	if (!threads)
		return false; /* who knows */
	while (!found && (e = readdir(threads)))
		found = thread_is(pid, e->d_name, PEER_THREAD);
	closedir(threads);
	return !found;
}

bool peer_exchange(pid_t pid, struct peer_request q, struct peer_answer *a, int *memory)
{
	int fd, given = -1;
	bool ok;

	q.version = PEER_VERSION;
	fd = peer_ask(pid, &q);
	ok = fd >= 0 && peer_answered(fd, a, &given, now_ns() + 1000 * MS);
	int why = errno;
	if (fd >= 0)
		close(fd);
	if (memory)
		*memory = given;
	else if (given >= 0)
		close(given);
	errno = why;
	return ok;
}
