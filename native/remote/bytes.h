/* Values in a payload, one after the other. What comes from outside is read within its bounds or not at all. */
#ifndef ELASTIC_REMOTE_BYTES_H
#define ELASTIC_REMOTE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include "frames.h"

struct writer {
	size_t size;
	unsigned char bytes[2 * MOST_NAME];
};

static inline bool writer_put(struct writer *w, const void *value, size_t size)
{
	if (size > sizeof w->bytes - w->size)
		return false;
	memcpy(w->bytes + w->size, value, size);
	w->size += size;
	return true;
}

static inline bool writer_text(struct writer *w, const char *text)
{
	size_t n = strlen(text) + 1;
	return n <= MOST_NAME && writer_put(w, text, n);
}

struct reader { const unsigned char *at, *end; };

static inline bool reader_get(struct reader *r, void *value, size_t size)
{
	if ((size_t)(r->end - r->at) < size)
		return false;
	memcpy(value, r->at, size);
	r->at += size;
	return true;
}

static inline bool reader_text(struct reader *r, char *text, size_t size)
{
	size_t most = (size_t)(r->end - r->at), n = strnlen((const char *)r->at, most);
	return n < most && n < size && reader_get(r, text, n + 1);
}

static inline bool reader_done(const struct reader *r) { return r->at == r->end; }

#endif
