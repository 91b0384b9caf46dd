/* Where the server of a container's remote card is. */
#ifndef ELASTIC_REMOTE_ADDRESS_H
#define ELASTIC_REMOTE_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

/* An address in words: unix:PATH, or tcp:IP:PORT. 0 if it is none. */
socklen_t address_read(const char *words, struct sockaddr_storage *address);
/* Connects to the address in the file that the agent mounts; -1 if nobody is there. */
int address_connect(void);
/* What a connection of ours is like: nothing waits for more to send. */
void address_tune(int fd);
/* Whether the other side, or an agent between, is on this node. */
bool address_local(int fd);

#endif
