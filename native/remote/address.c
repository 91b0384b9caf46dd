/* Where the server of a container's remote card is: one line in a file, "unix:PATH" or "tcp:IP:PORT". */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "address.h"

static socklen_t read_unix(const char *path, struct sockaddr_un *to)
{
	if (strlen(path) >= sizeof to->sun_path)
		return 0;
	to->sun_family = AF_UNIX;
	strcpy(to->sun_path, path);
	return sizeof *to;
}

socklen_t address_read(const char *words, struct sockaddr_storage *to)
{
	char ip[64];
	int port;

	memset(to, 0, sizeof *to);
	if (!strncmp(words, "unix:", 5))
		return read_unix(words + 5, (struct sockaddr_un *)to);
	if (sscanf(words, "tcp:%63[0-9.]:%d", ip, &port) == 2 && port > 0 && port < 65536) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)to;
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		return inet_pton(AF_INET, ip, &v4->sin_addr) == 1 ? sizeof *v4 : 0;
	}
	return 0;
}

bool address_local(int fd)
{
	struct sockaddr_storage own;
	socklen_t size = sizeof own;
	return getsockname(fd, (struct sockaddr *)&own, &size) == 0 && own.ss_family == AF_UNIX;
}

void address_tune(int fd)
{
	int on = 1, bytes = 4 << 20;

	if (address_local(fd))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes); /* TCP finds a better size by itself, unless it is set */
	else
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* The path is fixed: nothing inside the container chooses another. Tests build a variant that reads a root. */
static const char *file(char *buffer, size_t size)
{
	const char *root = "";
#ifdef ELASTICGPU_TESTING
	root = getenv("ELASTICGPU_ROOT") ? getenv("ELASTICGPU_ROOT") : "";
#endif
	snprintf(buffer, size, "%s/etc/elastic-gpu/remote", root);
	return buffer;
}

int address_connect(void)
{
	struct sockaddr_storage to;
	char words[256], path[512];
	int from = open(file(path, sizeof path), O_RDONLY | O_CLOEXEC), fd;
	ssize_t n = from < 0 ? -1 : read(from, words, sizeof words - 1);
	socklen_t size;

	if (from >= 0)
		close(from);
	if (n <= 0)
		return -1;
	words[n] = 0;
	words[strcspn(words, "\n")] = 0;
	size = address_read(words, &to);
	fd = size ? socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, size) != 0) {
		close(fd);
		return -1;
	}
	if (fd >= 0)
		address_tune(fd);
	return fd;
}
