/* A connection, passed from the process that listens to the one whose session it is. */
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
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

int pass_receive(int from, struct hello *hello)
{
	union control c = {0};
	struct iovec part = {hello, sizeof *hello};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
	struct cmsghdr *h;
	int fd = -1;

	if (recvmsg(from, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *hello || !(h = CMSG_FIRSTHDR(&m)) || h->cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(&fd, CMSG_DATA(h), sizeof fd);
	return fd;
}
