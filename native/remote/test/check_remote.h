/* What every test here includes; its folder is for its server and card. */
#ifndef CHECK_REMOTE_H
#define CHECK_REMOTE_H
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "../address.h"
#include "../frames.h"
#include "../outbox.h"

#include "../../cuda/test/runner.h"

static void test_begins(void) {}
#endif
