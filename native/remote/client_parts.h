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
/* A call that answers with text. */
CUresult call_text(unsigned call, const struct writer *w, char *text, int size);

#endif
