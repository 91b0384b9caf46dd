/* The card behind libcuda and libnvidia-ml: how much memory which process uses of it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "stub.h"

struct stub_card *stub_card(void)
{
	static _Atomic(struct stub_card *) card;
	struct stub_card *c = atomic_load(&card), *none = NULL;
	const char *path = getenv("STUB_CARD");
	int fd;

	if (c)
		return c;
	fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
	if (fd >= 0 && ftruncate(fd, sizeof *c) != 0)
		abort();
	c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, fd, 0);
	if (fd >= 0)
		close(fd);
	if (c == MAP_FAILED)
		abort();
	if (!atomic_compare_exchange_strong(&card, &none, c)) {
		munmap(c, sizeof *c);
		return none;
	}
	return c;
}

/* What a process held is free when it is dead, waited for or not. */
static int alive(uint64_t pid)
{
	char path[40], text[256], *name_end;
	FILE *f;
	size_t n;

	if (!pid || (kill((pid_t)pid, 0) != 0 && errno == ESRCH))
		return 0;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = 0;
	name_end = strrchr(text, ')');
	return name_end && name_end[2] != 'Z' && name_end[2] != 'X';
}

uint64_t stub_card_used(int dev)
{
	struct stub_card *c = stub_card();
	uint64_t sum = 0;

	for (int i = 0; i < STUB_PROCESSES; i++)
		if (alive(atomic_load(&c->pid[i])))
			sum += atomic_load(&c->used[i][dev]);
	return sum;
}

uint64_t stub_card_size(void)
{
	const char *s = getenv("STUB_MEMORY");
	return s ? strtoull(s, NULL, 10) : (uint64_t)16 << 30;
}

int stub_device_count(void)
{
	const char *s = getenv("STUB_DEVICES");
	return s ? atoi(s) : 1;
}

/* STUB_FIRST is which of the node's cards this process sees first. */
void stub_uuid(int dev, unsigned char *bytes)
{
	const char *first = getenv("STUB_FIRST");

	memset(bytes, 0x11, 16);
	bytes[15] = (unsigned char)(0x20 + dev + (first ? atoi(first) : 0));
}
