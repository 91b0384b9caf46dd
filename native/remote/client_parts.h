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
static inline CUlaunchConfig own_launch(const CUlaunchConfig *c)
{
	CUlaunchConfig own = c ? *c : (CUlaunchConfig){0};
	own.stream = own_stream(own.stream);
	return own;
}
/* A call that answers with text, and how it is asked. */
typedef CUresult (*ask_fn)(unsigned call, const void *args, size_t size, void *into, size_t expect);
CUresult call_text(ask_fn ask, unsigned call, const struct writer *w, char *text, int size);

/* ---- code (client_code.c) ---- */

/* Where the program wants the compiler's words, and how many there were. */
struct words { char *info, *error; void **info_size, **error_size; };
/* Takes the options for code, and where words go; false if one is not carried. */
bool take_options(struct wire_load *l, struct words *w, unsigned count, const int *options, void **values);
/* One thread at a time has the compiler: what it said last is asked for after. */
void compiler_lock(void);
void compiler_unlock(void);
void take_words(const struct words *w); /* if options say that they are wanted */
/* What a file has, to be freed, and a zero behind it; NULL: it cannot be read. */
void *file_read(const char *path, size_t *size);

#endif
