/* What the parts of the client that stand for the driver's functions use. */
#ifndef ELASTIC_REMOTE_CLIENT_PARTS_H
#define ELASTIC_REMOTE_CLIENT_PARTS_H

#include <stdint.h>
#include "bytes.h"
#include "client.h"
#include "constants.h"
#include "client_exports.h"
#include "remote_calls.h"
#include "wire_calls.h"

static inline void *own_stream(void *stream) { return stream ? stream : (void *)CU_STREAM_PER_THREAD; }
/* A call that answers with text, and how it is asked. */
typedef CUresult (*ask_fn)(unsigned call, const void *args, size_t size, void *into, size_t expect);
CUresult call_text(ask_fn ask, unsigned call, const struct writer *w, char *text, int size);

#endif
