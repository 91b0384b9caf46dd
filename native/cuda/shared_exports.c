/*
 * Memory of this process that others of its container have mapped. Each of them is written down at the block when it is
 * given a descriptor of it, by pid and start time; it goes when it says so, or has ended.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "blocks.h"
#include "driver_symbols.h"
#include "memory_calls.h"
#include "movable_memory.h"
#include "program_memory.h"
#include "shared_exports.h"
#include "system.h"

static _Atomic bool closed; /* it moves: nothing is given */
static _Atomic uint64_t secret; /* of this process, so that its names are not taken for those of a later one of its pid */
static uint64_t last_name;  /* both under the lock of blocks.h */

/* ---- names ---- */

static bool name_block(struct block *b)
{
	uint64_t drawn;

	if (!atomic_load(&secret) && syscall(SYS_getrandom, &drawn, sizeof drawn, 0) == (long)sizeof drawn)
		atomic_store(&secret, drawn);
	if (atomic_load(&secret) && !b->name)
		b->name = ++last_name;
	return b->name != 0;
}

bool shared_export(struct block *b, uint64_t offset, uint64_t size, struct shared_name *n)
{
	bool ok;

	blocks_lock();
	ok = b->import || ((b->prop.handle_types & CU_MEM_HANDLE_POSIX_FD) && name_block(b));
	if (ok && b->import)
		shared_import_name(b, n);
	else if (ok)
		*n = (struct shared_name){.magic = SHARED_MAGIC, .id = b->name, .secret = secret, .pid = (uint32_t)getpid(),
			.program = b->program, .offset = offset, .size = size};
	blocks_unlock();
	return ok;
}

static struct block *named(uint64_t id, uint64_t said)
{
	struct block *b = secret && said == secret && id ? blocks : NULL;

	while (b && b->name != id)
		b = b->next;
	return b;
}

struct block *shared_own(const struct shared_name *n)
{
	return n->pid == (uint32_t)getpid() ? named(n->id, n->secret) : NULL;
}

/* ---- importers ---- */

static bool note(struct block *b, pid_t pid, bool all)
{
	uint64_t process = process_word(pid);
	struct importer *i = b->importers;

	while (i && i->process != process)
		i = i->next;
	if (!i) {
		i = calloc(1, sizeof *i);
		if (!i)
			return false;
		*i = (struct importer){.process = process, .next = b->importers};
		b->importers = i;
	}
	i->there |= all;
	return true;
}

static bool forget(struct block *b, uint64_t process)
{
	for (struct importer **p = &b->importers, *i; (i = *p); p = &i->next) {
		if (i->process != process)
			continue;
		*p = i->next;
		free(i);
		return true;
	}
	return false;
}

/* Takes off those that have ended; *alive is the last that has not, for many blocks have the same importers. */
static void forget_ended(struct block *b, uint64_t *alive)
{
	for (struct importer *i = b->importers, *next; i; i = next) {
		next = i->next;
		if (i->process != *alive && process_dead(i->process))
			forget(b, i->process);
		else
			*alive = i->process;
	}
}

int shared_give(pid_t to, const struct peer_request *q, struct peer_answer *a)
{
	struct chunk *c;
	struct block *b;
	int fd = -1;

	a->says = PEER_UNKNOWN;
	if (!q->secret || q->secret != atomic_load(&secret))
		return -1; /* it has no name of ours */
	a->says = PEER_LATER;
	if (atomic_load(&closed)) { /* the lock is held for as long as it moves */
		if (q->wanted)
			atomic_store(&memory_calls.wanted, true);
		return -1;
	}
	blocks_lock();
	b = named(q->id, q->secret);
	c = b && q->chunk < b->chunks ? &b->chunk[q->chunk] : NULL;
	if (!c) {
		a->says = PEER_UNKNOWN;
	} else if (!atomic_load(&closed) && c->handle) {
		CUresult r = note(b, to, q->chunk + 1 == b->chunks) ? real_cuMemExportToShareableHandle(&fd, c->handle, CU_MEM_HANDLE_POSIX_FD, 0) : CUDA_ERROR_OUT_OF_MEMORY;
		*a = (struct peer_answer){.says = r == CUDA_SUCCESS ? PEER_DONE : PEER_REFUSED, .device = b->device->index,
			.size = b->size, .chunk_size = b->chunk[0].size};
		if (r != CUDA_SUCCESS) {
			fd = -1;
			snprintf(a->why, sizeof a->why, "the driver answered %d", r);
		}
	}
	blocks_unlock();
	return fd;
}

void shared_drop(pid_t from, const struct peer_request *q, struct peer_answer *a)
{
	struct block *b;

	blocks_lock();
	b = named(q->id, q->secret);
	a->says = b && forget(b, process_word(from)) ? PEER_DONE : PEER_UNKNOWN;
	blocks_unlock();
	movable_settle();
	program_settle();
}

void shared_exports_refresh(void)
{
	uint64_t alive = 0;
	bool unused = false;

	blocks_lock();
	for (struct block *b = blocks; b; b = b->next) {
		if (!b->name)
			continue;
		forget_ended(b, &alive);
		unused |= !b->importers && (b->freed || (b->program && b->refs <= 0 && !b->maps));
	}
	blocks_unlock();
	if (unused) {
		movable_settle();
		program_settle();
	}
}

/* ---- they leave, and come back ---- */

struct asked { uint64_t process; int fd; bool nobody; };

/* Each process once that has something, or is asked to leave it; the living only. */
static unsigned collect(struct asked **all, bool leave)
{
	unsigned n = 0, most = 0;
	uint64_t alive = 0;

	for (struct block *b = blocks; b; b = b->next) {
		forget_ended(b, &alive);
		for (struct importer *i = b->importers; i; i = i->next) {
			unsigned k = 0;
			i->there &= !leave;
			while (k < n && (*all)[k].process != i->process)
				k++;
			if (k < n)
				continue;
			if (n == most) {
				struct asked *more = realloc(*all, (most = 2 * most + 8) * sizeof *more);
				if (!more)
					return UINT32_MAX;
				*all = more;
			}
			(*all)[n++] = (struct asked){i->process, -1, false};
		}
	}
	return n;
}

static void ask_all(struct asked *all, unsigned n, enum peer_asks ask)
{
	struct peer_request q = {.version = PEER_VERSION, .ask = ask, .secret = secret};

	for (unsigned i = 0; i < n; i++) {
		all[i].fd = peer_ask((pid_t)container_pid(all[i].process), &q);
		all[i].nobody = all[i].fd < 0 && errno == ECONNREFUSED;
	}
}

/* It is another program now, which has nothing of ours. */
static void forget_all(uint64_t process)
{
	blocks_lock();
	for (struct block *b = blocks; b; b = b->next)
		forget(b, process);
	blocks_unlock();
}

/* Whether one has let go. A process that is killed hangs up before it is gone. */
static bool has_left(const struct asked *one, int64_t deadline, char *why, size_t size)
{
	int pid = (int)container_pid(one->process), fd;
	struct peer_answer a;

	if (one->fd >= 0 && peer_answered(one->fd, &a, &fd, deadline)) {
		if (fd >= 0)
			close(fd);
		if (a.says == PEER_UNKNOWN)
			forget_all(one->process);
		else if (a.says != PEER_DONE)
			snprintf(why, size, "process %d, which shares memory of it: %s", pid, a.why);
		return a.says == PEER_DONE || a.says == PEER_UNKNOWN;
	}
	for (int64_t end = now_ns() + 1000 * MS; !process_dead(one->process); sleep_ns(MS)) {
		if (now_ns() <= end)
			continue;
		if (one->nobody && peer_replaced(pid)) {
			forget_all(one->process);
			return true;
		}
		snprintf(why, size, "process %d, which shares memory of it, %s", pid, one->nobody ? "has closed the socket at which it answers" : "does not answer");
		return false;
	}
	return true;
}

/* The text of a peer goes into a line of JSON. */
static void make_plain(char *why)
{
	for (; *why; why++)
		if (*why < ' ' || *why > '~' || *why == '"' || *why == '\\')
			*why = ' ';
}

bool shared_exports_leave(int64_t deadline, char *why, size_t size)
{
	struct asked *all = NULL;
	unsigned n;
	bool left;

	blocks_lock();
	atomic_store(&closed, true);
	n = collect(&all, true);
	blocks_unlock();
	left = n != UINT32_MAX;
	if (!left)
		snprintf(why, size, "no memory");
	else
		ask_all(all, n, PEER_LEAVE);
	for (unsigned i = 0; i < n && left; i++)
		left = has_left(&all[i], deadline, why, size);
	for (unsigned i = 0; n != UINT32_MAX && i < n; i++)
		if (all[i].fd >= 0)
			close(all[i].fd);
	free(all);
	if (!left) {
		make_plain(why);
		shared_exports_return();
	}
	return left;
}

static bool all_there(void)
{
	bool all = true;

	blocks_lock();
	for (struct block *b = blocks; b && all; b = b->next)
		for (struct importer *i = b->importers; i && all; i = i->next)
			all = i->there || process_dead(i->process);
	blocks_unlock();
	return all;
}

void shared_exports_return(void)
{
	int64_t deadline = now_ns() + 1000 * MS;
	struct asked *all = NULL;
	unsigned n;

	if (!atomic_exchange(&closed, false))
		return;
	blocks_lock();
	n = collect(&all, false);
	blocks_unlock();
	if (n != UINT32_MAX)
		ask_all(all, n, PEER_RETURN); /* they look by themselves, too */
	for (unsigned i = 0; n != UINT32_MAX && i < n; i++)
		if (all[i].fd >= 0)
			close(all[i].fd);
	free(all);
	while (n && !all_there() && now_ns() < deadline)
		sleep_ns(MS);
}

void shared_exports_fork_child(void)
{
	atomic_store(&closed, false);
	atomic_store(&secret, 0);
	last_name = 0;
}
