/* How long code is, by what it says itself: a cubin, a fat binary, or text. */
#ifndef ELASTIC_REMOTE_CODE_H
#define ELASTIC_REMOTE_CODE_H

#include <stdbool.h>
#include <stddef.h>

/* The size of code, of which no more than most bytes are there; 0: it is of no kind that is known, or longer. */
size_t code_size(const void *code, size_t most);
/* Where code begins: a program's own binary names it by a pointer. */
const void *code_begins(const void *image);

#endif
