/*
 * A socket per process that shares memory, in a folder that only its container has. A message is one struct of a fixed
 * size; a descriptor travels beside it. Nothing is believed of a peer but that it is the process that the kernel says.
 */
#include <dirent.h>
#include <errno.h>
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
static void sweep(void)
{
	DIR *folder = opendir(path_peers());
	struct sockaddr_un a;
	struct dirent *e;

	while (folder && (e = readdir(folder))) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		if (pid > 0 && kill(pid, 0) < 0 && errno == ESRCH && address(pid, &a))
			unlink(a.sun_path);
	}
	if (folder)
		closedir(folder);
}

int peer_listen(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un a;

	shared_folder(path_peers());
	sweep();
	if (fd >= 0 && address(getpid(), &a)) {
		unlink(a.sun_path);
		if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && chmod(a.sun_path, 0666) == 0 && listen(fd, 64) == 0)
			return fd;
	}
	log_error("%s: memory cannot be shared with other processes: %s", path_peers(), strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

void peer_unlisten(void)
{
	struct sockaddr_un a;

	if (address(getpid(), &a))
		unlink(a.sun_path);
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
