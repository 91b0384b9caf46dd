/* How long code is, by what it says itself: a cubin, a fat binary, or text. */
#ifndef ELASTIC_REMOTE_CODE_H
#define ELASTIC_REMOTE_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The size of code, of which no more than most bytes are there; 0: it is of no kind that is known, or longer. */
size_t code_size(const void *code, size_t most);
/* Where code begins: a program's own binary names it by a pointer. */
const void *code_begins(const void *image);

/*
 * Code is sent once: the server retains what was loaded, and the client asks for it by size and hash. The hash has a key that is
 * random and the session's, so that who makes code for a program to load cannot make two that the program takes for one.
 */
#define CODE_KEY_BYTES 16
struct code_name { uint64_t size, hash[2]; };
void code_name(const void *code, size_t size, const unsigned char *key, struct code_name *name);

#define LEAST_RETAINED_BYTES ((size_t)64 << 10) /* an answer takes as long as sending these */
#ifdef ELASTICGPU_TESTING
#define MOST_RETAINED_BYTES ((size_t)4 << 20) /* so that tests need not load much */
#else
#define MOST_RETAINED_BYTES ((size_t)32 << 20) /* of a session, together */
#endif
static inline bool code_worth_retaining(size_t size) { return size >= LEAST_RETAINED_BYTES && size <= MOST_RETAINED_BYTES; }

/* The answer to a name that the server has no code of: it is to be sent. No number of the driver's. */
#define CODE_UNKNOWN 0x7e000001

#endif
