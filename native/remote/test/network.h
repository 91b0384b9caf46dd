/* A server with the tests' driver, and a network to it that can be cut. */
#ifndef NETWORK_H
#define NETWORK_H
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include "check_remote.h"

static pid_t server;
static const char *server_preloads; /* a library that it runs under */

static void folder(const char *path)
{
	char full[512];
	snprintf(full, sizeof full, "%s%s", check_root, path);
	CHECK(mkdir(full, 0777) == 0 || errno == EEXIST);
}

static void address_is(const char *socket)
{
	char path[512];
	FILE *f;

	folder("/etc");
	folder("/etc/elastic-gpu");
	snprintf(path, sizeof path, "%s/etc/elastic-gpu/remote", check_root);
	f = fopen(path, "w");
	CHECK(f && fprintf(f, "unix:%s/%s\n", check_root, socket) > 0 && fclose(f) == 0);
	setenv("ELASTICGPU_ROOT", check_root, 1);
}

static int connect_to(const char *name)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(at.sun_path, sizeof at.sun_path, "%s/%s", check_root, name);
	while (connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
		CHECK(errno == ENOENT || errno == ECONNREFUSED);
	return fd;
}

static void serve_with(const char *option, const char *value)
{
	char at[512], card[512];

	address_is("server");
	snprintf(at, sizeof at, "unix:%s/server", check_root);
	snprintf(card, sizeof card, "%s/card", check_root);
	setenv("STUB_CARD", card, 1);
	setenv("STUB_DEVICES", "2", 1);
	server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setenv("LD_LIBRARY_PATH", getenv("STUB_LIBRARY"), 1);
		if (server_preloads)
			setenv("LD_PRELOAD", server_preloads, 1);
		execl(getenv("REMOTE_SERVER"), "elastic-gpu-remote", at, option, value, NULL);
		_exit(1);
	}
	close(connect_to("server"));
}

/* ---- the network ---- */

static _Atomic long cut_after; /* bytes that a connection carries, both ways together */
static _Atomic int cuts;
static _Atomic long carried;   /* bytes over all connections */

static _Atomic int connections; /* that were made */

struct link { int a, b; };

/* Those that are open. They are cut when a test says so, too. */
static struct { pthread_mutex_t lock; struct link *list[64]; int count; } open_links = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void link_end(struct link *l)
{
	pthread_mutex_lock(&open_links.lock);
	for (int i = 0; i < open_links.count; i++)
		if (open_links.list[i] == l)
			open_links.list[i--] = open_links.list[--open_links.count];
	pthread_mutex_unlock(&open_links.lock);
	close(l->a);
	close(l->b);
	free(l);
}

/* Cuts what is there; says whether there was something. */
__attribute__((unused)) static bool cut_links(void)
{
	bool some;

	pthread_mutex_lock(&open_links.lock);
	some = open_links.count > 0;
	for (int i = 0; i < open_links.count; i++) {
		shutdown(open_links.list[i]->a, SHUT_RDWR);
		shutdown(open_links.list[i]->b, SHUT_RDWR);
	}
	pthread_mutex_unlock(&open_links.lock);
	return some;
}

static void *carry(void *arg)
{
	struct link *l = arg;
	long left = atomic_load(&cut_after);
	char bytes[4096];

	for (;;) {
		struct pollfd p[] = {{.fd = l->a, .events = POLLIN}, {.fd = l->b, .events = POLLIN}};
		CHECK(poll(p, 2, -1) > 0);
		for (int i = 0; i < 2; i++) {
			if (!p[i].revents)
				continue;
			ssize_t n = read(p[i].fd, bytes, sizeof bytes);
			if (n > left) {
				n = left;
				atomic_fetch_add(&cuts, 1);
			}
			atomic_fetch_add(&carried, n > 0 ? n : 0);
			if (n <= 0 || !socket_write(i ? l->a : l->b, bytes, (size_t)n) || (left -= n) == 0) {
				shutdown(l->a, SHUT_RDWR);
				shutdown(l->b, SHUT_RDWR);
				link_end(l);
				return NULL;
			}
		}
	}
}

/* Hands on bytes of the server, with a file that may come with them; false if either side is gone. */
static bool carry_file(int from, int to)
{
	union { struct cmsghdr align; char bytes[CMSG_SPACE(sizeof(int))]; } c = {0};
	char bytes[4096];
	struct iovec part = {bytes, sizeof bytes};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
	ssize_t n = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
	bool ok;

	if (n <= 0)
		return false;
	atomic_fetch_add(&carried, n);
	part.iov_len = (size_t)n;
	ok = sendmsg(to, &m, MSG_NOSIGNAL) == n;
	if (CMSG_FIRSTHDR(&m)) {
		int fd;
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
		close(fd);
	}
	return ok;
}

/* What is between on one node: it carries the server's files as well. */
static void *carry_files(void *arg)
{
	struct link *l = arg;
	char bytes[4096];

	for (bool ok = true; ok;) {
		struct pollfd p[] = {{.fd = l->a, .events = POLLIN}, {.fd = l->b, .events = POLLIN}};
		CHECK(poll(p, 2, -1) > 0);
		if (p[0].revents) {
			ssize_t n = read(l->a, bytes, sizeof bytes);
			ok = n > 0 && socket_write(l->b, bytes, (size_t)n);
			atomic_fetch_add(&carried, n > 0 ? n : 0);
		}
		if (ok && p[1].revents)
			ok = carry_file(l->b, l->a);
	}
	link_end(l);
	return NULL;
}

static bool with_files;

static void *network(void *arg)
{
	int listener = *(int *)arg;

	for (;;) {
		struct link *l = malloc(sizeof *l);
		pthread_t t;
		l->a = accept(listener, NULL, NULL);
		l->b = connect_to("server");
		CHECK(l->a >= 0);
		pthread_mutex_lock(&open_links.lock);
		CHECK(open_links.count < 64);
		open_links.list[open_links.count++] = l;
		pthread_mutex_unlock(&open_links.lock);
		atomic_fetch_add(&connections, 1);
		CHECK(pthread_create(&t, NULL, with_files ? carry_files : carry, l) == 0 && pthread_detach(t) == 0);
	}
	return NULL;
}

__attribute__((unused)) static void start_network(void)
{
	static int listener;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	pthread_t t;

	snprintf(at.sun_path, sizeof at.sun_path, "%s/network", check_root);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 8) == 0);
	address_is("network");
	CHECK(pthread_create(&t, NULL, network, &listener) == 0);
}

#endif
