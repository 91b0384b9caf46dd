/* Bytes that came over a connection. A moment is spent looking for more: an answer is there sooner than a thread wakes up. */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include "constants.h"
#include "inbox.h"
#include "system.h"

#define SPIN_NS (50 * MS / 1000)

static ssize_t receive(int fd, void *to, size_t most)
{
	int64_t until = now_ns() + SPIN_NS;
	ssize_t n;

	do {
		n = recv(fd, to, most, MSG_DONTWAIT);
		if (n >= 0 || (errno != EAGAIN && errno != EINTR))
			return n;
		sched_yield();
	} while (now_ns() < until);
	do
		n = recv(fd, to, most, 0);
	while (n < 0 && errno == EINTR);
	return n;
}

bool inbox_take(struct inbox *in, int fd, void *to, size_t size)
{
	while (size) {
		size_t have = in->to - in->from, n = have < size ? have : size;
		if (have) {
			memcpy(to, in->bytes + in->from, n);
			in->from += n;
			to = (char *)to + n;
			size -= n;
			continue;
		}
		bool straight = size >= INBOX_BYTES / 2; /* what is large goes to where it is wanted */
		ssize_t got = receive(fd, straight ? to : in->bytes, straight ? size : INBOX_BYTES);
		if (got <= 0)
			return false;
		if (straight) {
			to = (char *)to + got;
			size -= (size_t)got;
		} else {
			in->from = 0;
			in->to = (size_t)got;
		}
	}
	return true;
}
