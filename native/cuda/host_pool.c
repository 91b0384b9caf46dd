/*
 * Pinned host memory for what leaves the card: slabs of huge pages, from the pool the agent mounted or our own, touched
 * and registered ahead of need. It fills like a stack and is emptied when everything is back.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "constants.h"
#include "driver_symbols.h"
#include "host_pool.h"
#include "paths.h"
#include "system.h"

#ifdef ELASTICGPU_TESTING
#define SLAB (64 * MiB) /* small, so that chunks lie across slabs */
#else
#define SLAB GiB
#endif
#define MAX_SLABS 1024
#define TOUCHERS 16

static void *slabs[MAX_SLABS];
static unsigned count;
static uint64_t filled;

/* A file in the agent's pool that has no name, so that it goes with the process however that ends. */
static void *map_slab(void)
{
	int fd = open(path_pool(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	void *p = MAP_FAILED;

	if (fd >= 0) {
		if (ftruncate(fd, (off_t)SLAB) == 0)
			p = mmap(NULL, SLAB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	}
	if (p == MAP_FAILED)
		p = mmap(NULL, SLAB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, SLAB, MADV_HUGEPAGE);
	return p;
}

struct touching { unsigned first, last; _Atomic unsigned next; _Atomic unsigned left; };

static void *touch(void *arg)
{
	struct touching *t = arg;
	unsigned piece, pieces = (t->last - t->first) * 16;

	while ((piece = atomic_fetch_add(&t->next, 1)) < pieces) {
		volatile char *p = (char *)slabs[t->first + piece / 16] + (piece % 16) * (SLAB / 16);
		for (uint64_t at = 0; at < SLAB / 16; at += 4096)
			p[at] = 0;
	}
	atomic_fetch_sub(&t->left, 1);
	futex_wake(&t->left);
	return NULL;
}

static void touch_all(unsigned first, unsigned last)
{
	struct touching t = {.first = first, .last = last, .left = 1};
	unsigned left;

	for (int i = 1; i < TOUCHERS; i++) {
		atomic_fetch_add(&t.left, 1);
		if (!thread_start(touch, &t))
			atomic_fetch_sub(&t.left, 1);
	}
	touch(&t);
	while ((left = atomic_load(&t.left)))
		futex_wait(&t.left, left, 100 * MS);
}

bool host_prepare(uint64_t bytes)
{
	unsigned want = (unsigned)((bytes + SLAB - 1) / SLAB), first = count;

	if (want > MAX_SLABS)
		return false;
	while (count < want && (slabs[count] = map_slab()))
		count++;
	if (count > first)
		touch_all(first, count);
	for (unsigned i = first; i < count; i++) {
		if (real_cuMemHostRegister_v2 && real_cuMemHostRegister_v2(slabs[i], SLAB, 1) == CUDA_SUCCESS)
			continue;
		for (unsigned j = i; j < count; j++)
			munmap(slabs[j], SLAB);
		count = i;
	}
	return count >= want;
}

uint64_t host_prepared(void) { return (uint64_t)count * SLAB; }

bool host_take(uint64_t bytes, uint64_t *at)
{
	if (filled + bytes > host_prepared() && !host_prepare(filled + bytes))
		return false;
	*at = filled;
	filled += bytes;
	return true;
}

void *host_piece(uint64_t at, uint64_t bytes, uint64_t *length)
{
	uint64_t left = SLAB - at % SLAB;

	*length = bytes < left ? bytes : left;
	return (char *)slabs[at / SLAB] + at % SLAB;
}

void host_reset(void) { filled = 0; }

void host_fork_child(void)
{
	count = 0;
	filled = 0;
}
