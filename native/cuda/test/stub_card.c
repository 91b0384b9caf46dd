/* The card behind libcuda and libnvidia-ml: how much memory which process uses of it. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
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

static int held_by(struct stub_memory *m, uint64_t pid);

/* Its maker has it no more, another one has. */
static int left_over(struct stub_memory *m)
{
	uint64_t maker = atomic_load(&m->maker);

	if (held_by(m, maker) > 0 && (maker == (uint64_t)getpid() || alive(maker)))
		return 0;
	for (int i = 0; i < STUB_SHARERS; i++)
		if (alive(atomic_load(&m->by[i].pid)) && atomic_load(&m->by[i].refs) > 0)
			return 1;
	return 0;
}

uint64_t stub_card_used(int dev)
{
	struct stub_card *c = stub_card();
	uint64_t sum = 0;

	for (int i = 0; i < STUB_PROCESSES; i++)
		if (alive(atomic_load(&c->pid[i])))
			sum += atomic_load(&c->used[i][dev]);
	for (int i = 0; i < STUB_MEMORIES; i++)
		if (atomic_load(&c->memory[i].id) && atomic_load(&c->memory[i].dev) == dev && left_over(&c->memory[i]))
			sum += atomic_load(&c->memory[i].bytes);
	return sum;
}

/* ---- memory that several processes may have ---- */

static struct stub_memory *memory_of(uint64_t id)
{
	struct stub_card *c = stub_card();

	for (int i = 0; i < STUB_MEMORIES; i++)
		if (atomic_load(&c->memory[i].id) == id)
			return &c->memory[i];
	return NULL;
}

static int held_by(struct stub_memory *m, uint64_t pid)
{
	for (int i = 0; i < STUB_SHARERS; i++)
		if (atomic_load(&m->by[i].pid) == pid)
			return atomic_load(&m->by[i].refs);
	return 0;
}

static void card_lock(void)
{
	_Atomic uint64_t *lock = &stub_card()->lock;
	uint64_t me = (uint64_t)syscall(SYS_gettid);

	for (uint64_t was = 0; !atomic_compare_exchange_strong(lock, &was, me); sched_yield())
		if (alive(was))
			was = 0;
}
static void card_unlock(void) { atomic_store(&stub_card()->lock, 0); }

int stub_memory_has(uint64_t id)
{
	card_lock();
	int has = memory_of(id) != NULL;
	card_unlock();
	return has;
}

static struct stub_memory *memory_new(uint64_t id, uint64_t bytes, int dev)
{
	struct stub_card *c = stub_card();

	for (int i = 0; i < STUB_MEMORIES; i++) {
		struct stub_memory *m = &c->memory[i];
		uint64_t was = atomic_load(&m->id);
		int held = 0;
		for (int k = 0; k < STUB_SHARERS; k++)
			held |= alive(atomic_load(&m->by[k].pid)) && atomic_load(&m->by[k].refs) > 0;
		if (was && held)
			continue;
		atomic_store(&m->id, id);
		for (int k = 0; k < STUB_SHARERS; k++) {
			atomic_store(&m->by[k].refs, 0);
			atomic_store(&m->by[k].pid, 0);
		}
		atomic_store(&m->bytes, bytes);
		atomic_store(&m->dev, dev);
		atomic_store(&m->maker, (uint64_t)getpid());
		return m;
	}
	abort();
}

void stub_memory_take(uint64_t id, uint64_t bytes, int dev)
{
	uint64_t me = (uint64_t)getpid();
	struct stub_memory *m;

	card_lock();
	m = memory_of(id);
	if (!m)
		m = memory_new(id, bytes, dev);
	for (int i = 0; i < STUB_SHARERS; i++) {
		uint64_t was = atomic_load(&m->by[i].pid);
		if (was == me || ((!was || !alive(was)) && atomic_compare_exchange_strong(&m->by[i].pid, &was, me))) {
			if (was != me)
				atomic_store(&m->by[i].refs, 0);
			atomic_fetch_add(&m->by[i].refs, 1);
			card_unlock();
			return;
		}
	}
	abort();
}

void stub_memory_drop(uint64_t id)
{
	struct stub_memory *m;
	int left = 0;

	card_lock();
	m = memory_of(id);
	if (!m)
		abort();
	for (int i = 0; i < STUB_SHARERS; i++) {
		if (atomic_load(&m->by[i].pid) == (uint64_t)getpid())
			atomic_fetch_sub(&m->by[i].refs, 1);
		left |= alive(atomic_load(&m->by[i].pid)) && atomic_load(&m->by[i].refs) > 0;
	}
	if (!left)
		atomic_store(&m->id, 0);
	card_unlock();
}

void stub_memory_forget(void)
{
	struct stub_card *c = stub_card();

	for (int i = 0; i < STUB_MEMORIES; i++)
		for (int k = 0; k < STUB_SHARERS; k++)
			if (atomic_load(&c->memory[i].by[k].pid) == (uint64_t)getpid())
				atomic_store(&c->memory[i].by[k].refs, 0);
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
