/* Each test has a folder of its own, for its server and card. */
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

static void test_begins(void) { CHECK(mkdir(check_root, 0700) == 0); }
#endif
