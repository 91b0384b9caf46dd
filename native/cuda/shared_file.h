/* Files that processes map together. */
#ifndef ELASTIC_SHARED_FILE_H
#define ELASTIC_SHARED_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Maps a file whose first word is the version of its layout; NULL, and why, if it cannot be mapped. */
void *shared_map(const char *path, size_t size, char *why, size_t why_size);
/* Maps a file that the agent has made in its full size; NULL, and why, if it is not there or not of that size. */
void *shared_map_made(const char *path, size_t size, bool writable, char *why, size_t why_size);

/*
 * A folder in which all users of the container make files, whatever mask the program has. Not sticky: a container is one
 * tenant, and who gets a pid again has to take over the name that another user left.
 */
void shared_folder(const char *path);

#endif
