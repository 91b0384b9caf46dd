/*
 * delay ADDRESS TARGET MICROSECONDS: a network between a program and its server that takes so long in each direction, and
 * carries as much as memory does. A direction is a thread that reads and notes when, and one that writes when it is time.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "../address.h"
#include "../outbox.h"
#include "constants.h"
#include "system.h"

#define BYTES ((size_t)256 << 10)
#define PIECES 64
#define AWAKE_NS (2 * MS) /* after the last byte: a network has no threads that must wake up */

struct piece { int64_t at; size_t size; char bytes[BYTES]; };
struct way {
	int from, to;
	_Atomic unsigned read, written; /* read: a futex */
	_Atomic bool over, sleeps;
	struct piece piece[PIECES];
};

static int64_t delay;

static ssize_t receive(int fd, void *to, size_t most)
{
	int64_t until = now_ns() + AWAKE_NS;
	ssize_t n;

	do
		n = recv(fd, to, most, MSG_DONTWAIT);
	while (n < 0 && errno == EAGAIN && now_ns() < until);
	return n < 0 && errno == EAGAIN ? recv(fd, to, most, 0) : n;
}

static void moved(struct way *w)
{
	if (atomic_exchange(&w->sleeps, false))
		futex_wake(&w->read);
}

static void *read_pieces(void *arg)
{
	struct way *w = arg;

	for (;;) {
		unsigned n = atomic_load(&w->read);
		while (n - atomic_load(&w->written) == PIECES && !atomic_load(&w->over))
			sched_yield();
		struct piece *p = &w->piece[n % PIECES];
		ssize_t got = atomic_load(&w->over) ? 0 : receive(w->from, p->bytes, BYTES);
		if (got <= 0)
			break;
		p->at = now_ns();
		p->size = (size_t)got;
		atomic_store(&w->read, n + 1);
		moved(w);
	}
	atomic_store(&w->over, true);
	moved(w);
	return NULL;
}

/* Until there is a piece after so many, or no more come. */
static void await_piece(struct way *w, unsigned n)
{
	int64_t until = now_ns() + AWAKE_NS;

	while (n == atomic_load(&w->read) && !atomic_load(&w->over)) {
		if (now_ns() < until) {
			sched_yield();
			continue;
		}
		atomic_store(&w->sleeps, true);
		if (n == atomic_load(&w->read) && !atomic_load(&w->over))
			futex_wait(&w->read, n, 100 * MS);
	}
}

static void *write_pieces(void *arg)
{
	struct way *w = arg;

	for (;;) {
		unsigned n = atomic_load(&w->written);
		await_piece(w, n);
		if (n == atomic_load(&w->read))
			break;
		struct piece *p = &w->piece[n % PIECES];
		while (now_ns() < p->at + delay)
			;
		if (!socket_write(w->to, p->bytes, p->size))
			break;
		atomic_store(&w->written, n + 1);
	}
	atomic_store(&w->over, true);
	shutdown(w->from, SHUT_RDWR);
	shutdown(w->to, SHUT_RDWR);
	return NULL;
}

static void carry(int from, int to)
{
	struct way *w = calloc(1, sizeof *w);
	pthread_t t;

	w->from = from;
	w->to = to;
	if (pthread_create(&t, NULL, read_pieces, w) || pthread_create(&t, NULL, write_pieces, w))
		exit(1);
}

int main(int argc, char **argv)
{
	struct sockaddr_storage at, target;
	socklen_t size = argc == 4 ? address_read(argv[1], &at) : 0, target_size = argc == 4 ? address_read(argv[2], &target) : 0;
	int listener = size ? socket(at.ss_family, SOCK_STREAM, 0) : -1, on = 1;

	if (!target_size || listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
	    bind(listener, (struct sockaddr *)&at, size) || listen(listener, 16)) {
		fprintf(stderr, "usage: delay ADDRESS TARGET MICROSECONDS\n");
		return 2;
	}
	delay = atoll(argv[3]) * 1000;
	for (;;) {
		int fd = accept(listener, NULL, NULL), to = socket(target.ss_family, SOCK_STREAM, 0);
		if (fd < 0 || connect(to, (struct sockaddr *)&target, target_size)) {
			close(fd);
			close(to);
			continue;
		}
		address_tune(fd);
		address_tune(to);
		carry(fd, to);
		carry(to, fd);
	}
}
