/*
 * A connection. On one node the bytes of each direction go through a ring in memory that both sides have, without a system
 * call while both are awake. Who finds nothing looks again for a moment, then says that it sleeps, and is woken.
 *
 * The other side may be hostile and writes all of that memory when it likes. A position is checked against one's own each time
 * that it is read, and bytes are copied out, once, before anybody looks at them. The file's size is sealed: nobody can take
 * its pages away from under who reads. The socket stays open, and carries nothing: it ends when the other side does.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <fcntl.h>
#include "connection.h"
#include "constants.h"
#include "system.h"

#define LEAST_SPIN_NS (50 * MS / 1000)
#define LOOK_READS 256

/* ---- the file ---- */

int shared_make(void)
{
	int fd = memfd_create("elastic-gpu-remote", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 && (ftruncate(fd, sizeof(struct shared)) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

bool connection_share(struct connection *c, int file, enum side side)
{
	struct stat st;
	int seals = fcntl(file, F_GET_SEALS);
	void *at;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(file, &st) != 0 || st.st_size != (off_t)sizeof(struct shared))
		return false;
	at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (at == MAP_FAILED)
		return false;
	madvise(at, sizeof(struct shared), MADV_DONTFORK); /* a child has a session of its own */
	c->memory = at;
	c->out = &c->memory->from[side];
	c->in = &c->memory->from[!side];
	c->read = c->written = 0;
	return true;
}

void connection_unshare(struct connection *c)
{
	if (c->memory)
		munmap(c->memory, sizeof *c->memory);
	c->memory = NULL;
}

void connection_replace(struct connection *c, const struct connection *by)
{
	connection_unshare(c);
	c->memory = by->memory;
	c->in = by->in;
	c->out = by->out;
	c->read = by->read;
	c->written = by->written;
	c->gone = false;
}

/* ---- waiting ---- */

/* How long to look for bytes. Where it took longer than that of late, looking does not help. */
static int64_t spin_ns(const struct connection *c)
{
	return c->usual_ns > c->most_spin_ns ? LEAST_SPIN_NS : 2 * c->usual_ns + LEAST_SPIN_NS;
}

static void waited(struct connection *c, int64_t ns)
{
	int64_t most = 4 * c->most_spin_ns + LEAST_SPIN_NS;

	c->usual_ns += ((ns < most ? ns : most) - c->usual_ns) / 4;
}

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static bool look(_Atomic uint64_t *position, uint64_t known, int64_t until)
{
	for (;;) {
		for (int i = 0; i < 64; i++) {
			if (atomic_load_explicit(position, memory_order_acquire) != known)
				return true;
			relax();
		}
		if (now_ns() >= until)
			return false;
		sched_yield();
	}
}

/* The other side is there while the socket is open and silent. */
static bool there(int fd)
{
	char c;
	ssize_t n = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Sleeps until a position of the other side's has changed; false if that side is gone, and has not changed it before. */
static bool sleep_until_moved(int fd, _Atomic uint64_t *position, uint64_t known, _Atomic unsigned *sleeps)
{
	bool moved;

	for (;;) {
		atomic_store(sleeps, 1);
		if ((moved = atomic_load(position) != known))
			break;
		futex_wait(sleeps, 1, LOOK_NS); /* in case nobody wakes it: the other side can also have this thread wait elsewhere */
		if ((moved = atomic_load(position) != known))
			break;
		if (!there(fd)) {
			moved = atomic_load(position) != known;
			break;
		}
	}
	atomic_store(sleeps, 0);
	return moved;
}

static void wake(_Atomic unsigned *sleeps)
{
	atomic_thread_fence(memory_order_seq_cst); /* what was moved is seen by who is about to sleep, or we see that it sleeps */
	if (atomic_load_explicit(sleeps, memory_order_relaxed) && atomic_exchange(sleeps, 0))
		futex_wake(sleeps);
}

bool connection_broken(const struct connection *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
	return poll(&p, 1, 0) > 0;
}

void connection_shut(struct connection *c)
{
	shutdown(c->fd, SHUT_RDWR);
	if (c->memory) {
		futex_wake(&c->in->reader_sleeps);
		futex_wake(&c->out->writer_sleeps);
	}
}

/* ---- the rings ---- */

/* Bytes to or from a place of a ring, which may go round its end. */
static void ring_put(struct ring *r, uint64_t at, const void *from, size_t n)
{
	size_t begin = at % RING_BYTES, first = RING_BYTES - begin < n ? RING_BYTES - begin : n;

	memcpy(r->bytes + begin, from, first);
	memcpy(r->bytes, (const char *)from + first, n - first);
}

static void ring_get(const struct ring *r, uint64_t at, void *to, size_t n)
{
	size_t begin = at % RING_BYTES, first = RING_BYTES - begin < n ? RING_BYTES - begin : n;

	memcpy(to, r->bytes + begin, first);
	memcpy((char *)to + first, r->bytes, n - first);
}

/* Bytes that have come. Who is always busy looks now and then, too, whether the other side is there: a connection that was cut
 * ends also where both go on. What was written before it counts. */
static uint64_t ring_filled(struct connection *c)
{
	uint64_t written = atomic_load_explicit(&c->in->written, memory_order_acquire);

	if (!c->gone && c->reads++ % LOOK_READS == LOOK_READS - 1 && !there(c->fd)) {
		c->gone = true;
		c->end = written = atomic_load(&c->in->written);
	}
	return (c->gone ? c->end : written) - c->read;
}

static ssize_t ring_receive(struct connection *c, void *to, size_t most)
{
	uint64_t there_are = ring_filled(c);

	if (!there_are && c->gone)
		return 0;
	if (!there_are) {
		int64_t from = now_ns();
		bool moved = look(&c->in->written, c->read, from + spin_ns(c)) || sleep_until_moved(c->fd, &c->in->written, c->read, &c->in->reader_sleeps);
		waited(c, now_ns() - from);
		if (!moved)
			return 0;
		there_are = ring_filled(c);
	}
	if (!there_are || there_are > RING_BYTES)
		return -1;
	size_t n = there_are < most ? (size_t)there_are : most;
	ring_get(c->in, c->read, to, n);
	c->read += n;
	atomic_store_explicit(&c->in->read, c->read, memory_order_release);
	wake(&c->in->writer_sleeps);
	return (ssize_t)n;
}

ssize_t connection_try(struct connection *c, const struct iovec *list, int n)
{
	uint64_t used = c->written - atomic_load_explicit(&c->out->read, memory_order_acquire), took = 0;

	if (used > RING_BYTES)
		return -1;
	for (int i = 0; i < n && used + took < RING_BYTES; i++) {
		uint64_t space = RING_BYTES - used - took;
		size_t size = list[i].iov_len < space ? list[i].iov_len : (size_t)space;
		ring_put(c->out, c->written + took, list[i].iov_base, size);
		took += size;
	}
	c->written += took;
	if (took) {
		atomic_store_explicit(&c->out->written, c->written, memory_order_release);
		wake(&c->out->reader_sleeps);
	}
	return (ssize_t)took;
}

static ssize_t ring_send(struct connection *c, const struct iovec *list, int n)
{
	ssize_t took;

	while (!(took = connection_try(c, list, n))) {
		uint64_t full = c->written - RING_BYTES; /* where the other side is */
		if (!look(&c->out->read, full, now_ns() + LEAST_SPIN_NS) && !sleep_until_moved(c->fd, &c->out->read, full, &c->out->writer_sleeps))
			return -1;
	}
	return took;
}

/* ---- the socket ---- */

static ssize_t socket_receive(struct connection *c, void *to, size_t most)
{
	ssize_t n = recv(c->fd, to, most, MSG_DONTWAIT);
	int64_t from, until;

	if (n >= 0 || (errno != EAGAIN && errno != EINTR))
		return n;
	from = now_ns();
	until = from + spin_ns(c);
	do {
		sched_yield();
		n = recv(c->fd, to, most, MSG_DONTWAIT);
	} while (n < 0 && (errno == EAGAIN || errno == EINTR) && now_ns() < until);
	while (n < 0 && (errno == EAGAIN || errno == EINTR))
		n = recv(c->fd, to, most, 0);
	waited(c, now_ns() - from);
	return n;
}

ssize_t connection_receive(struct connection *c, void *to, size_t most)
{
	return c->memory ? ring_receive(c, to, most) : socket_receive(c, to, most);
}

ssize_t connection_send(struct connection *c, const struct iovec *list, int n)
{
	struct msghdr m = {.msg_iov = (struct iovec *)list, .msg_iovlen = (size_t)n};
	ssize_t got;

	if (c->memory)
		return ring_send(c, list, n);
	do
		got = sendmsg(c->fd, &m, MSG_NOSIGNAL);
	while (got < 0 && errno == EINTR);
	return got;
}

bool connection_write(struct connection *c, const void *data, size_t size)
{
	while (size) {
		struct iovec part = {(void *)data, size};
		ssize_t n = connection_send(c, &part, 1);
		if (n <= 0)
			return false;
		data = (const char *)data + n;
		size -= (size_t)n;
	}
	return true;
}
