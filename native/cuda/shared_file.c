/* Files that processes map together. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "constants.h"
#include "shared_file.h"

#define LAYOUT ((uint64_t)0x454c415300000000 | PROTOCOL)

void shared_folder(const char *path)
{
	mkdir(path, 0777);
	(void)chmod(path, 0777);
}

void *shared_map(const char *path, size_t size, char *why, size_t why_size)
{
	void *p = MAP_FAILED;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);

	/* Everybody sets the same size, and zeroes are a valid beginning: 200 processes may do this at once. */
	if (fd >= 0)
		(void)fchmod(fd, 0666); /* whoever made it: the others may not */
	if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		snprintf(why, why_size, "%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (p == MAP_FAILED)
		return NULL;
	_Atomic uint64_t *version = p;
	uint64_t zero = 0;
	if (!atomic_compare_exchange_strong(version, &zero, LAYOUT) && zero != LAYOUT) {
		snprintf(why, why_size, "%s: made by another version of this library", path);
		munmap(p, size);
		return NULL;
	}
	return p;
}

void *shared_map_made(const char *path, size_t size, bool writable, char *why, size_t why_size)
{
	void *p = MAP_FAILED;
	int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
	off_t length = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);

	if (length == (off_t)size)
		p = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (length >= 0 && length != (off_t)size)
		snprintf(why, why_size, "%s: it has %lld bytes, not %zu", path, (long long)length, size);
	else if (p == MAP_FAILED)
		snprintf(why, why_size, "%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return p == MAP_FAILED ? NULL : p;
}
