/* Bytes that came over a connection. */
#include <string.h>
#include "inbox.h"

bool inbox_take(struct inbox *in, struct connection *c, void *to, size_t size)
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
		ssize_t got = connection_receive(c, straight ? to : in->bytes, straight ? size : INBOX_BYTES);
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
