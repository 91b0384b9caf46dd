/* Frames on their way to the other side, retained until it has seen them. */
#ifndef ELASTIC_REMOTE_OUTBOX_H
#define ELASTIC_REMOTE_OUTBOX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "connection.h"
#include "frames.h"

#define OUTBOX_BYTES ((uint64_t)8 << 20)
#define OUTBOX_FRAMES ((uint64_t)1 << 16)

/* A part of a payload that stays where it is until the frame was seen; then over is called with it, if there is one. */
struct apart {
	const void *data;
	size_t size;
	void (*over)(void *);
	void *arg;
};

struct record {
	uint64_t at;                   /* where it begins, counted from the beginning of time */
	uint32_t size;                 /* of header and payload, without the part that is elsewhere */
	struct apart apart;
};

struct outbox {
	pthread_mutex_t lock;          /* of what follows; held for moments */
	unsigned char *bytes;
	struct record *records;        /* by number */
	uint64_t end;                  /* where the next begins */
	uint64_t sent, acked;          /* numbers of the last frame, and of the last that was seen */
	pthread_mutex_t writing;       /* of what follows; held while the socket takes bytes */
	uint64_t written;              /* number of the last frame that the connection took whole */
	size_t partial;                /* bytes that it took of the next */
	_Atomic uint64_t seen;         /* number of the other side's last frame */
};

bool outbox_start(struct outbox *o);
/* Appends a frame; its number, or 0 if there is no space until more was seen. */
uint64_t outbox_add(struct outbox *o, unsigned call, unsigned lane, const void *payload, size_t size, struct apart apart);
/* Writes what is not written yet; false if the connection is broken. */
bool outbox_flush(struct outbox *o, struct connection *c);
/* The same without waiting for the other side, where memory is shared with it; false if something is left to be written. */
bool outbox_try(struct outbox *o, struct connection *c);
/* Tells the other side what was seen of it. */
bool outbox_acknowledge(struct outbox *o, struct connection *c);
/* The other side has seen frames up to a number; false if there was none of that number. */
bool outbox_seen(struct outbox *o, uint64_t number);
/* A new connection takes the place of the old one, under the number of its socket. The other side has seen frames up to a
 * number; false if that cannot be, and then the new one is closed. For who reads. */
bool outbox_resume(struct outbox *o, uint64_t seen, struct connection *fresh, struct connection *c);
uint64_t outbox_unseen(struct outbox *o);

bool socket_write(int fd, const void *data, size_t size);
bool socket_read(int fd, void *data, size_t size);

#endif
