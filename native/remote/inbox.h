/* Bytes that came over a connection and were not looked at. One thread reads at a time. */
#ifndef ELASTIC_REMOTE_INBOX_H
#define ELASTIC_REMOTE_INBOX_H

#include <stdbool.h>
#include <stddef.h>
#include "connection.h"

#define INBOX_BYTES ((size_t)256 << 10)

struct inbox {
	unsigned char bytes[INBOX_BYTES];
	size_t from, to;
};

/* Takes so many bytes, as soon as they are there; false if the connection broke. */
bool inbox_take(struct inbox *in, struct connection *c, void *to, size_t size);

#endif
