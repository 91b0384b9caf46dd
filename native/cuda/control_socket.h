/* The socket on which the agent asks this process, and the thread that serves it. */
#ifndef ELASTIC_CONTROL_SOCKET_H
#define ELASTIC_CONTROL_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

void control_start(void);
void control_fork_child(void);
/* Has the thread look now for what changed. */
void control_ring(void);
/* Answers one request; returns the length of the reply. */
int control_answer(const char *request, bool trusted, char *reply, size_t size);

#endif
