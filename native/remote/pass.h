/* A connection, passed from the process that listens to the one whose session it is. */
#ifndef ELASTIC_REMOTE_PASS_H
#define ELASTIC_REMOTE_PASS_H

#include <stdbool.h>
#include "frames.h"

bool pass_send(int to, int fd, const struct hello *hello);
/* -1: the other side is gone. */
int pass_receive(int from, struct hello *hello);

#endif
