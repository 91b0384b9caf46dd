/* Files that processes map together. */
#ifndef ELASTIC_SHARED_FILE_H
#define ELASTIC_SHARED_FILE_H

#include <stddef.h>

/* Maps a file whose first word is the version of its layout; NULL, and why, if it cannot be mapped. */
void *shared_map(const char *path, size_t size, char *why, size_t why_size);

#endif
