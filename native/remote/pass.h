/* Files that go with a hello: a connection, passed from the process that listens to the one whose session it is, or memory. */
#ifndef ELASTIC_REMOTE_PASS_H
#define ELASTIC_REMOTE_PASS_H

#include <stdbool.h>
#include "frames.h"

bool pass_send(int to, int fd, const struct hello *hello);
/* False if the other side is gone. *fd is -1 if no file came. */
bool pass_receive(int from, struct hello *hello, int *fd);

#endif
