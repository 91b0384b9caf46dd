/*
 * The agent's way to ask this process: a socket named after its pid, one request a line, one line of JSON back. The same
 * thread looks after what changes by itself: limits, neighbours, overhead, the dead.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "compute_limit.h"
#include "constants.h"
#include "control_socket.h"
#include "hold.h"
#include "host_pool.h"
#include "ipc_imports.h"
#include "log.h"
#include "memory_calls.h"
#include "nvml_readings.h"
#include "overhead.h"
#include "oversubscribe.h"
#include "paths.h"
#include "pools.h"
#include "session.h"
#include "shared_exports.h"
#include "shared_file.h"
#include "streams.h"
#include "swap.h"
#include "system.h"

static _Atomic int listener = -1, bell = -1;

static const char *own_name(char *name, size_t size)
{
	snprintf(name, size, "%d.sock", (int)getpid());
	return name;
}

static int listen_here(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), folder = shared_folder(path_control());
	char name[24];
	bool ok = fd >= 0 && folder >= 0 && shared_socket(fd, folder, own_name(name, sizeof name), false) && listen(fd, 8) == 0;

	if (!ok)
		log_error("control socket of process %d in %s: %s", (int)getpid(), path_control(), strerror(errno));
	if (folder >= 0)
		close(folder);
	if (!ok && fd >= 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* The agent is outside the container: its pid cannot be seen from here and reads as 0. */
static bool from_agent(int fd)
{
	struct ucred peer = {0};
	socklen_t size = sizeof peer;

	if (atomic_load(&session.control_any))
		return true;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == 0;
}

static int describe_swap(const struct swap_result *r, char *reply, size_t size)
{
	if (!r->done)
		return snprintf(reply, size, "{\"ok\":false,\"reason\":\"%s\"}\n", r->why);
	return snprintf(reply, size, "{\"ok\":true,\"bytes\":%llu,\"copy_s\":%.3f,\"total_s\":%.3f}\n",
		(unsigned long long)r->bytes, r->copy_s, r->total_s);
}

static int describe(char *reply, size_t size)
{
	struct container_process *p = &session.container->process[atomic_load(&session.process)];
	const char *stays = swap_refusal();
	int n = snprintf(reply, size, "{\"ok\":true,\"protocol\":%d,\"pid\":%d,\"container\":\"%s\",\"out\":%s,\"wanted\":%s,\"idle_ns\":%lld,\"immovable\":\"%s\",\"prepared\":%llu,\"devices\":[",
		PROTOCOL, (int)getpid(), session.container_name, swap_is_away() ? "true" : "false", atomic_load(&memory_calls.waiting) ? "true" : "false",
		(long long)memory_calls_idle(now_ns()), stays ? stays : "", (unsigned long long)host_prepared());

	container_reap(session.container);
	for (int i = 0; i < session.devices && n < (int)size; i++) {
		struct device *d = &session.device[i];
		struct gate *g = atomic_load(&d->gate);
		n += snprintf(reply + n, size - (size_t)n,
			"%s{\"uuid\":\"%s\",\"limit\":%llu,\"used\":%llu,\"held\":%llu,\"overhead\":%llu,\"swapped\":%llu,\"compute\":%u.%02u,\"busy_ns\":%llu,\"waited_ns\":%llu}",
			i ? "," : "", d->uuid, (unsigned long long)atomic_load(&d->limit),
			(unsigned long long)container_used(session.container, d->index),
			(unsigned long long)atomic_load(&p->held[d->index]), (unsigned long long)atomic_load(&p->overhead[d->index]),
			(unsigned long long)atomic_load(&p->swapped[d->index]), atomic_load(&d->share) / 100, atomic_load(&d->share) % 100,
			(unsigned long long)atomic_load(&p->busy_ns[d->index]), g ? (unsigned long long)atomic_load(&g->waited_ns) : 0);
	}
	if (n < (int)size)
		n += snprintf(reply + n, size - (size_t)n, "]}\n");
	return n < (int)size ? n : (int)size - 1;
}

/* One that has no memory itself stays held: others may have to do without what it launches. */
static void out(uint64_t bytes, struct swap_result *r)
{
	swap_out(bytes, r);
	if (r->done)
		hold_out();
}

static void in(struct swap_result *r)
{
	uint64_t missing;

	swap_in(r, &missing);
	hold_end();
}

int control_answer(const char *request, bool trusted, char *reply, size_t size)
{
	struct swap_result r;
	unsigned long long bytes = 0, version = 0;

	if (sscanf(request, "hello %llu", &version) == 1)
		return snprintf(reply, size, "{\"ok\":%s,\"protocol\":%d,\"pid\":%d}\n", version == PROTOCOL ? "true" : "false", PROTOCOL, (int)getpid());
	if (!strcmp(request, "stats"))
		return describe(reply, size);
	if (!strcmp(request, "limits")) {
		session_reload(true); /* only reads the agent's file: every process may ask for that */
		return describe(reply, size);
	}
	if (!trusted)
		return snprintf(reply, size, "{\"ok\":false,\"reason\":\"only the agent may ask for this\"}\n");
	if (sscanf(request, "hostpid %llu", &bytes) == 1) {
		nvml_set_host_pid((unsigned)bytes);
		return describe(reply, size);
	}
	if (!strcmp(request, "hold") || !strcmp(request, "hold step"))
		return snprintf(reply, size, "{\"ok\":true,\"settled\":%s}\n", hold_begin(request[4]) ? "true" : "false");
	if (!strcmp(request, "out") || sscanf(request, "out %llu", &bytes) == 1)
		out(bytes ? bytes : UINT64_MAX, &r);
	else if (!strcmp(request, "in"))
		in(&r);
	else if (sscanf(request, "prepare %llu", &bytes) == 1)
		swap_prepare(bytes, &r);
	else
		return snprintf(reply, size, "{\"ok\":false,\"reason\":\"unknown request\"}\n");
	return describe_swap(&r, reply, size);
}

/* One line in, one line out. A peer that says nothing for a second is hung up on. */
static void serve(int fd)
{
	struct timeval timeout = {1, 0};
	char request[256], reply[8192];
	size_t n = 0;
	ssize_t got;
	int length;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
	while (n < sizeof request - 1 && !memchr(request, '\n', n)) {
		got = recv(fd, request + n, sizeof request - 1 - n, 0);
		if (got <= 0)
			return;
		n += (size_t)got;
	}
	request[n] = 0;
	request[strcspn(request, "\r\n")] = 0;
	length = control_answer(request, from_agent(fd), reply, sizeof reply);
	send(fd, reply, (size_t)length, MSG_NOSIGNAL);
}

static void look_after(void)
{
	memory_calls_idle(now_ns());
	session_reload(false);
	ipc_imports_refresh();
	shared_imports_refresh();
	shared_exports_refresh();
	for (int i = 0; i < session.devices; i++) {
		struct device *d = &session.device[i];
		compute_limit_reload(d);
		if (atomic_load(&session_row()->overhead[d->index]) || atomic_load(&d->primary)) {
			pools_refresh(d, false);
			overhead_refresh(d);
		}
	}
}

static void *control(void *arg)
{
	int64_t next = 0;
	(void)arg;

	prctl(PR_SET_NAME, "elastic-control");
	capture_relax_thread();
	for (;;) {
		bool often = atomic_load(&session.oversubscribe);
		struct pollfd p[2] = {{.fd = atomic_load(&listener), .events = POLLIN}, {.fd = atomic_load(&bell), .events = POLLIN}};
		int timeout = often || shared_imports_away() ? 20 : 500;
		uint64_t rung;
		if (poll(p, 2, timeout) > 0 && p[1].revents && read(p[1].fd, &rung, sizeof rung) < 0)
			sleep_ns(MS);
		if (p[0].revents) {
			int fd = accept4(p[0].fd, NULL, NULL, SOCK_CLOEXEC);
			if (fd >= 0) {
				serve(fd);
				close(fd);
			}
		}
		if (often)
			oversubscribe_serve();
		swap_return();
		hold_look();
		if (now_ns() >= next) {
			look_after();
			next = now_ns() + 500 * MS;
		}
	}
	return NULL;
}

void control_ring(void)
{
	uint64_t one = 1;

	if (write(atomic_load(&bell), &one, sizeof one) < 0)
		return; /* it looks by itself, too */
}

void control_start(void)
{
	atomic_store(&bell, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	atomic_store(&listener, listen_here());
	if (!thread_start(control, NULL))
		log_error("no thread for the control socket");
}

void control_fork_child(void)
{
	int fd = atomic_exchange(&listener, -1), rung = atomic_exchange(&bell, -1);
	if (fd >= 0)
		close(fd);
	if (rung >= 0)
		close(rung);
}

/* The socket's name goes with the process; one left by kill -9 is taken over by the next of that pid. */
__attribute__((destructor)) static void control_end(void)
{
	char name[24];
	int folder;

	if (atomic_load(&listener) < 0)
		return;
	folder = shared_folder(path_control());
	if (folder >= 0) {
		unlinkat(folder, own_name(name, sizeof name), 0);
		close(folder);
	}
	for (int i = 0; i < session.devices; i++)
		compute_limit_end(&session.device[i]);
}
