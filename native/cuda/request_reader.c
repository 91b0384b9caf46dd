/*
 * The arbiter's eyes. A request file belongs to a container that may be hostile: it can cut the file, blow it up, write
 * anything into it at any time, and make reading slow. So the file is never mapped here (a page that was cut off would
 * be a SIGBUS), a read takes what is there now and does not wait for a disk, and every word is plain numbers to the card.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include "request_reader.h"

int request_open(const char *path)
{
	struct stat s;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* a lease on the file does not hold us up */

	if (fd >= 0 && (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode))) {
		close(fd);
		return -1;
	}
	return fd;
}

bool request_restore(int fd)
{
	struct stat s;

	return fstat(fd, &s) == 0 && s.st_size != sizeof(struct request_file) && ftruncate(fd, sizeof(struct request_file)) == 0;
}

/* A short read is filled up with zeroes: such a process wants nothing. */
static bool read_part(int fd, size_t offset, void *to, size_t size)
{
	struct iovec v = {to, size};
	ssize_t n = preadv2(fd, &v, 1, (off_t)offset, RWF_NOWAIT);

	if (n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
		n = pread(fd, to, size, (off_t)offset);
	if (n < 0)
		return false;
	memset((char *)to + n, 0, size - (size_t)n);
	return true;
}

bool request_read(int fd, struct card *c, int tenant, bool all, int64_t now)
{
	struct said said[MAX_ROWS];
	int rows = all ? MAX_ROWS : c->tenant[tenant].rows;

	_Static_assert(sizeof(struct said) == sizeof(struct request) && offsetof(struct said, unused_us) == offsetof(struct request, unused_us), "one layout");
	if (!rows || !read_part(fd, offsetof(struct request_file, row), said, (size_t)rows * sizeof *said))
		return false;
	for (int i = 0; i < rows; i++)
		card_row_said(c, tenant, i, &said[i], now);
	return true;
}

bool request_read_steps(int fd, struct card *c, int tenant, int64_t now)
{
	uint64_t bits[MAX_ROWS / 64];

	if (!read_part(fd, offsetof(struct request_file, short_steps), bits, sizeof bits))
		return false;
	for (int i = 0; i < c->tenant[tenant].rows; i++)
		card_row_short(c, tenant, i, bits[i / 64] >> i % 64 & 1, now);
	return true;
}

bool request_read_memory(int fd, struct card *c, int tenant, int64_t now)
{
	struct said_memory said[MAX_ROWS];
	int rows = c->tenant[tenant].rows;

	_Static_assert(sizeof(struct said_memory) == sizeof(struct memory_request) && offsetof(struct said_memory, moved) == offsetof(struct memory_request, moved), "one layout");
	if (!rows || !read_part(fd, offsetof(struct request_file, memory), said, (size_t)rows * sizeof *said))
		return false;
	for (int i = 0; i < rows; i++)
		card_row_memory(c, tenant, i, &said[i], now);
	return true;
}
