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

struct link { int a, b; };

static void *carry(void *arg)
{
	struct link l = *(struct link *)arg;
	long left = atomic_load(&cut_after);
	char bytes[4096];

	free(arg);
	for (;;) {
		struct pollfd p[] = {{.fd = l.a, .events = POLLIN}, {.fd = l.b, .events = POLLIN}};
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
			if (n <= 0 || !socket_write(i ? l.a : l.b, bytes, (size_t)n) || (left -= n) == 0) {
				shutdown(l.a, SHUT_RDWR);
				shutdown(l.b, SHUT_RDWR);
				close(l.a);
				close(l.b);
				return NULL;
			}
		}
	}
}

static void *network(void *arg)
{
	int listener = *(int *)arg;

	for (;;) {
		struct link *l = malloc(sizeof *l);
		pthread_t t;
		l->a = accept(listener, NULL, NULL);
		l->b = connect_to("server");
		CHECK(l->a >= 0 && pthread_create(&t, NULL, carry, l) == 0 && pthread_detach(t) == 0);
	}
	return NULL;
}

static void start_network(void)
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
