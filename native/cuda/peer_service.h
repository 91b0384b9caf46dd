/* The thread that answers other processes of the container about memory that they share with this one. */
#ifndef ELASTIC_PEER_SERVICE_H
#define ELASTIC_PEER_SERVICE_H

#include <stdbool.h>
#include "peer_socket.h"

/* Starts it with the first memory that is shared; false if there is no socket. */
bool peer_service_start(void);
/* Answers one request of a process; a descriptor for it, or -1. */
int peer_service_answer(pid_t from, const struct peer_request *q, struct peer_answer *a);
void peer_service_fork_child(void);

#endif
