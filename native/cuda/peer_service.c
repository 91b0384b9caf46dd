/*
 * The thread that answers other processes of the container about memory that they share with this one. It asks nobody
 * itself: two that wait for each other's answer would wait in vain.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "control_socket.h"
#include "log.h"
#include "peer_service.h"
#include "shared_exports.h"
#include "shared_imports.h"
#include "streams.h"
#include "swap.h"
#include "system.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int listener = -1;

static void leave(pid_t from, uint64_t secret, struct peer_answer *a)
{
	const char *why;

	if (!shared_imports_know(from, secret)) {
		a->says = PEER_UNKNOWN; /* this is another program now than the one that had it */
		return;
	}
	why = swap_leave(from, secret);
	control_ring();
	a->says = why ? PEER_REFUSED : PEER_DONE;
	if (why)
		snprintf(a->why, sizeof a->why, "%s", why);
}

int peer_service_answer(pid_t from, const struct peer_request *q, struct peer_answer *a)
{
	int memory = -1;

	*a = (struct peer_answer){.says = PEER_UNKNOWN};
	switch (q->ask) {
	case PEER_GIVE: memory = shared_give(from, q, a); break;
	case PEER_DROP: shared_drop(from, q, a); break;
	case PEER_LEAVE: leave(from, q->secret, a); break;
	case PEER_RETURN: swap_returns(); control_ring(); a->says = PEER_DONE; break;
	}
	return memory;
}

static void *serve(void *arg)
{
	struct peer_request q;
	struct peer_answer a;
	pid_t from;
	(void)arg;

	prctl(PR_SET_NAME, PEER_THREAD);
	capture_relax_thread();
	for (;;) {
		int fd = peer_accept(atomic_load(&listener), &q, &from), memory;
		if (fd < 0) {
			sleep_ns(MS); /* too few descriptors, or one who says nothing */
			continue;
		}
		memory = peer_service_answer(from, &q, &a);
		peer_reply(fd, &a, memory);
		if (memory >= 0)
			close(memory);
		close(fd);
	}
	return NULL;
}

bool peer_service_start(void)
{
	bool ok;

	if (atomic_load(&listener) >= 0)
		return true;
	pthread_mutex_lock(&lock);
	if (atomic_load(&listener) < 0) {
		int fd = peer_listen();
		atomic_store(&listener, fd);
		if (fd >= 0 && !thread_start(serve, NULL)) {
			log_error("no thread for memory that is shared");
			atomic_store(&listener, -1);
			close(fd);
		}
	}
	ok = atomic_load(&listener) >= 0;
	pthread_mutex_unlock(&lock);
	return ok;
}

void peer_service_fork_child(void)
{
	int fd = atomic_exchange(&listener, -1);

	pthread_mutex_init(&lock, NULL);
	if (fd >= 0)
		close(fd);
}

/* The socket's name goes with the process; one left by kill -9 is swept by the next that listens. */
__attribute__((destructor)) static void peer_service_end(void)
{
	if (atomic_load(&listener) >= 0)
		peer_unlisten();
}
