/* Files that processes map together. */
#ifndef ELASTIC_SHARED_FILE_H
#define ELASTIC_SHARED_FILE_H

#include <stddef.h>

/* Maps a file that many processes share; its first word is the version of the layout. NULL, and why, if it cannot be had. */
void *shared_map(const char *path, size_t size, char *why, size_t why_size);

#endif
