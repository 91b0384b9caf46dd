/* Files that go with a hello. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "outbox.h"
#include "pass.h"

union control { struct cmsghdr align; char bytes[CMSG_SPACE(sizeof(int))]; };

bool pass_send(int to, int fd, const struct hello *hello)
{
	union control c = {0};
	struct iovec part = {(void *)hello, sizeof *hello};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	return sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *hello;
}

bool pass_receive(int from, struct hello *hello, int *fd)
{
	union control c = {0}; /* for one file: the system closes what more there is */
	struct iovec part = {hello, sizeof *hello};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
	struct cmsghdr *h;
	ssize_t n;

	*fd = -1;
	do
		n = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return false;
	h = CMSG_FIRSTHDR(&m);
	if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS && h->cmsg_len == CMSG_LEN(sizeof *fd))
		memcpy(fd, CMSG_DATA(h), sizeof *fd);
	if (socket_read(from, (char *)hello + n, sizeof *hello - (size_t)n))
		return true;
	if (*fd >= 0)
		close(*fd);
	return false;
}
