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
 * A folder in which all users of the container make files, whatever mask the program has; it is made if it is not there. Not
 * sticky: a container is one tenant, and who gets a pid again has to take over the name that another user left. So each of
 * them may put something else at any name, such as a link: what is done as root is done to the folder itself and to what lies
 * in it, by descriptor, and follows none. -1 if there is no such folder; errno says why.
 */
int shared_folder(const char *path);
/* Binds a socket to a name in such a folder, which it takes from whoever left it; to_all: whom every user may ask. */
bool shared_socket(int socket, int folder, const char *name, bool to_all);

#endif
