/*
 * Frames on their way to the other side. Threads append to one buffer, one at a time and without a system call; who has to
 * be sure that they are under way writes all that is there in one send. What is large is not copied into the buffer.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "outbox.h"

#define MOST_PARTS 64

bool outbox_start(struct outbox *o)
{
	memset(o, 0, sizeof *o);
	pthread_mutex_init(&o->lock, NULL);
	pthread_mutex_init(&o->writing, NULL);
	o->bytes = malloc(OUTBOX_BYTES);
	o->records = malloc(OUTBOX_FRAMES * sizeof *o->records);
	return o->bytes && o->records;
}

static struct record *record_of(struct outbox *o, uint64_t number) { return &o->records[number % OUTBOX_FRAMES]; }

/* Where a frame of a size begins: it does not go round the end of the buffer. */
static uint64_t place(uint64_t end, uint64_t size)
{
	uint64_t left = OUTBOX_BYTES - end % OUTBOX_BYTES;
	return left < size ? end + left : end;
}

static bool has_space(struct outbox *o, uint64_t at, uint64_t size)
{
	if (o->sent == o->acked)
		return true;
	return o->sent - o->acked < OUTBOX_FRAMES && at + size - record_of(o, o->acked + 1)->at <= OUTBOX_BYTES;
}

uint64_t outbox_add(struct outbox *o, unsigned call, unsigned lane, const void *payload, size_t size, struct apart apart)
{
	uint64_t whole = sizeof(struct frame) + size, number = 0, at;

	if (whole > OUTBOX_BYTES / 4)
		return 0;
	pthread_mutex_lock(&o->lock);
	at = place(o->end, whole);
	if (has_space(o, at, whole)) {
		unsigned char *to = o->bytes + at % OUTBOX_BYTES;
		struct frame f = {(uint32_t)(size + apart.size), (uint16_t)call, (uint16_t)lane, o->sent + 1, atomic_load(&o->seen)};
		memcpy(to, &f, sizeof f);
		if (size)
			memcpy(to + sizeof f, payload, size);
		number = o->sent + 1;
		*record_of(o, number) = (struct record){at, (uint32_t)whole, apart};
		o->end = at + whole;
		o->sent = number;
	}
	pthread_mutex_unlock(&o->lock);
	return number;
}

/* Appends a part of a frame to what is to be written, joined with the one before where they touch. */
static int part(struct iovec *list, int n, const void *data, size_t size, size_t *skip)
{
	size_t less = *skip < size ? *skip : size;

	*skip -= less;
	data = (const char *)data + less;
	size -= less;
	if (!size)
		return n;
	if (n && (const char *)list[n - 1].iov_base + list[n - 1].iov_len == data) {
		list[n - 1].iov_len += size;
		return n;
	}
	list[n] = (struct iovec){(void *)data, size};
	return n + 1;
}

/* What is not written yet, up to a number of parts. */
static int unwritten(struct outbox *o, struct iovec *list)
{
	size_t skip = o->partial;
	int n = 0;

	pthread_mutex_lock(&o->lock);
	for (uint64_t i = o->written + 1; i <= o->sent && n < MOST_PARTS - 1; i++) {
		struct record *r = record_of(o, i);
		n = part(list, n, o->bytes + r->at % OUTBOX_BYTES, r->size, &skip);
		n = part(list, n, r->apart.data, r->apart.size, &skip);
	}
	pthread_mutex_unlock(&o->lock);
	return n;
}

static void took(struct outbox *o, size_t bytes)
{
	pthread_mutex_lock(&o->lock);
	o->partial += bytes;
	while (o->written < o->sent) {
		struct record *r = record_of(o, o->written + 1);
		if (o->partial < r->size + r->apart.size)
			break;
		o->partial -= r->size + r->apart.size;
		o->written++;
	}
	pthread_mutex_unlock(&o->lock);
}

typedef ssize_t (*send_fn)(struct connection *, const struct iovec *, int);

static bool write_all(struct outbox *o, struct connection *c, send_fn send)
{
	struct iovec list[MOST_PARTS];
	int n;

	while ((n = unwritten(o, list)) > 0) {
		ssize_t got = send(c, list, n);
		if (got <= 0)
			return false;
		took(o, (size_t)got);
	}
	return true;
}

bool outbox_flush(struct outbox *o, struct connection *c)
{
	pthread_mutex_lock(&o->writing);
	bool ok = write_all(o, c, connection_send);
	pthread_mutex_unlock(&o->writing);
	return ok;
}

bool outbox_try(struct outbox *o, struct connection *c)
{
	if (pthread_mutex_trylock(&o->writing) != 0)
		return false;
	bool ok = c->memory && write_all(o, c, connection_try);
	pthread_mutex_unlock(&o->writing);
	return ok;
}

bool outbox_acknowledge(struct outbox *o, struct connection *c)
{
	pthread_mutex_lock(&o->writing);
	struct frame f = {.seen = atomic_load(&o->seen)};
	bool ok = write_all(o, c, connection_send) && connection_write(c, &f, sizeof f);
	pthread_mutex_unlock(&o->writing);
	return ok;
}

bool outbox_seen(struct outbox *o, uint64_t number)
{
	bool ok = true;

	pthread_mutex_lock(&o->lock);
	if (number > o->sent) {
		ok = false;
		number = o->acked;
	}
	while (o->acked < number) {
		struct apart done = record_of(o, ++o->acked)->apart;
		if (done.over)
			done.over(done.arg);
	}
	pthread_mutex_unlock(&o->lock);
	return ok;
}

/* The caller has shut the old connection down, so that nobody writes to it for long. */
bool outbox_resume(struct outbox *o, uint64_t seen, struct connection *fresh, struct connection *c)
{
	int fd = c->fd;
	bool ok;

	pthread_mutex_lock(&o->writing);
	ok = seen >= o->acked && outbox_seen(o, seen) && dup3(fresh->fd, fd, O_CLOEXEC) == fd;
	close(fresh->fd);
	if (ok) {
		connection_replace(c, fresh);
		o->written = seen;
		o->partial = 0;
	} else {
		connection_unshare(fresh);
	}
	pthread_mutex_unlock(&o->writing);
	return ok;
}

uint64_t outbox_unseen(struct outbox *o)
{
	pthread_mutex_lock(&o->lock);
	uint64_t n = o->sent - o->acked;
	pthread_mutex_unlock(&o->lock);
	return n;
}

bool socket_write(int fd, const void *data, size_t size)
{
	while (size) {
		ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data = (const char *)data + n;
		size -= (size_t)n;
	}
	return true;
}

bool socket_read(int fd, void *data, size_t size)
{
	while (size) {
		ssize_t n = recv(fd, data, size, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data = (char *)data + n;
		size -= (size_t)n;
	}
	return true;
}
