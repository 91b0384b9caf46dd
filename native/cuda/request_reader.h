/* Reads a request file, which its container may change, cut or blow up at any moment. */
#ifndef ELASTIC_REQUEST_READER_H
#define ELASTIC_REQUEST_READER_H

#include <stdbool.h>
#include "card_turns.h"

/* Opens a container's request file; -1 if it is not a plain file that can be read now. */
int request_open(const char *path);
/* Brings the file back to its size; true if it had another. */
bool request_restore(int fd);
/* Reads what processes want; those in use so far, or all. False: nothing is known that was not known before. */
bool request_read(int fd, struct card *c, int tenant, bool all, int64_t now);
/* And which of those in use work in short steps. */
bool request_read_steps(int fd, struct card *c, int tenant, int64_t now);
bool request_read_memory(int fd, struct card *c, int tenant, int64_t now);

#endif
