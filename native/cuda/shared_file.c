/* Files that processes map together. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include "constants.h"
#include "shared_file.h"

#define LAYOUT ((uint64_t)0x454c415300000000 | PROTOCOL)

/* What a descriptor is open on, and that we have made it. By the kernel's call: libc has fstat as a function only since 2.33. */
static bool is_ours(int fd, unsigned type)
{
	struct statx s;

	return syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &s) == 0 && (s.stx_mode & S_IFMT) == type && s.stx_uid == geteuid();
}

int shared_folder(const char *path)
{
	int fd;

	mkdir(path, 0777);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && is_ours(fd, S_IFDIR))
		(void)fchmod(fd, 0777); /* whoever made it opens it to all */
	return fd;
}

/* A path of what a descriptor is open on, whatever lies at its name by now. */
static const char *opened(int fd, char *path, size_t size)
{
	snprintf(path, size, "/proc/self/fd/%d", fd);
	return path;
}

/* Opens a socket of our own to all: a name is only followed to what it must be. */
static bool open_to_all(int folder, const char *name)
{
	int fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char path[32];
	bool ok = fd >= 0 && is_ours(fd, S_IFSOCK) && chmod(opened(fd, path, sizeof path), 0666) == 0;

	if (fd >= 0)
		close(fd);
	return ok;
}

bool shared_socket(int socket, int folder, const char *name, bool to_all)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char path[32];

	unlinkat(folder, name, 0);
	return snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", opened(folder, path, sizeof path), name) < (int)sizeof a.sun_path &&
		bind(socket, (struct sockaddr *)&a, sizeof a) == 0 && (!to_all || open_to_all(folder, name));
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
