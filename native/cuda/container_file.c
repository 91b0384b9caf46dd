/*
 * What the processes of one container hold of each card, in a file they all map.
 *
 * There is no lock. Each process writes only its own row; the sum of the rows is the container's use. A row counts
 * while its owner word is set, and that word names pid and start time: clearing it, when the owner is found dead,
 * gives everything back in one step. To take memory a process adds to its own row first and then looks at the sum, so
 * that two can never both fit into the last free byte.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "container_file.h"
#include "shared_file.h"
#include "system.h"

#define STARTING ((uint64_t)1 << 63)
#define PID_BITS 22

struct container_file *container_open(const char *path, char *why, size_t why_size)
{
	return shared_map(path, sizeof(struct container_file), why, why_size);
}

int container_device(struct container_file *r, const char *uuid)
{
	uint64_t hash = hash_text(uuid);

	for (int i = 0; i < MAX_DEVICES; i++) {
		uint64_t there = 0;
		if (atomic_compare_exchange_strong(&r->device[i], &there, hash) || there == hash)
			return i;
	}
	return -1;
}

uint64_t container_pid(uint64_t owner)
{
	return owner & (((uint64_t)1 << PID_BITS) - 1);
}

/* State, threads and start time of a process from /proc; false if they cannot be read. */
static bool process_stat(pid_t pid, char *state, long *threads, uint64_t *start)
{
	char path[32], text[1024], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = 0;
	p = strrchr(text, ')'); /* the name may hold anything */
	if (!p || p[1] != ' ')
		return false;
	p += 2;
	*state = *p;
	for (int field = 3; *p; p++) {
		if (*p != ' ')
			continue;
		field++;
		if (field == 20)
			*threads = strtol(p + 1, NULL, 10);
		if (field == 22) {
			*start = strtoull(p + 1, NULL, 10);
			return true;
		}
	}
	return false;
}

uint64_t process_word(pid_t pid)
{
	char state;
	long threads;
	uint64_t start = 0;

	process_stat(pid, &state, &threads, &start);
	return ((start << PID_BITS) & ~STARTING) | (uint64_t)pid;
}

bool process_dead(uint64_t owner)
{
	pid_t pid = (pid_t)container_pid(owner);
	char state;
	long threads = 0;
	uint64_t start;

	if (kill(pid, 0) < 0 && errno == ESRCH)
		return true;
	if (!process_stat(pid, &state, &threads, &start))
		return kill(pid, 0) < 0 && errno == ESRCH;
	if ((state == 'Z' || state == 'X') && threads <= 1)
		return true; /* waits for its parent only; its memory is gone */
	return ((start << PID_BITS) & ~STARTING) != (owner & ~STARTING & ~(((uint64_t)1 << PID_BITS) - 1));
}

/* ---- the dead ---- */

/*
 * What a process shared may be there still when it is dead: those that have it charge it to themselves when they look, twice
 * a second. Until they have, it counts in the row of the dead.
 */
#define LOOKED_NS (1500 * MS)
static struct { _Atomic uint64_t owner; _Atomic int64_t since; } found_dead[MAX_PROCESSES];

/* Whether this process has known for long enough that the one in a row is dead. */
static bool dead_for_long(int row, uint64_t owner)
{
	if (atomic_load(&found_dead[row].owner) != owner) {
		atomic_store(&found_dead[row].since, now_ns());
		atomic_store(&found_dead[row].owner, owner);
	}
	return now_ns() - atomic_load(&found_dead[row].since) >= LOOKED_NS;
}

/* Clears the rows of the dead; *left are those whose time has not come. */
static uint64_t reap(struct container_file *r, unsigned *left)
{
	uint64_t cleared = 0;

	*left = 0;
	for (int i = 0; i < MAX_PROCESSES; i++) {
		uint64_t owner = atomic_load(&r->process[i].owner);
		if (!owner || !process_dead(owner))
			continue;
		if (dead_for_long(i, owner))
			cleared += atomic_compare_exchange_strong(&r->process[i].owner, &owner, 0);
		else
			++*left;
	}
	return cleared;
}

uint64_t container_reap(struct container_file *r)
{
	unsigned left;

	return reap(r, &left);
}

/* Clears the rows of all that are dead now; false if there are none. */
static bool reap_in_time(struct container_file *r)
{
	uint64_t cleared = 0;
	unsigned left;

	for (int64_t end = now_ns() + 2 * LOOKED_NS; cleared += reap(r, &left), left && now_ns() <= end; sleep_ns(5 * MS))
		;
	return cleared > 0;
}

void container_forget_own(struct container_file *r)
{
	uint64_t me = process_word(getpid());

	for (int i = 0; i < MAX_PROCESSES; i++) {
		uint64_t owner = me;
		atomic_compare_exchange_strong(&r->process[i].owner, &owner, 0);
	}
}

int container_join(struct container_file *r)
{
	uint64_t me = process_word(getpid());

	/* The dead are cleared away before a row is taken that gets no compute. */
	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < (pass ? MAX_PROCESSES : LOW_PROCESSES); i++) {
			struct container_process *p = &r->process[i];
			uint64_t free_row = 0;
			if (!atomic_compare_exchange_strong(&p->owner, &free_row, me | STARTING))
				continue;
			for (int d = 0; d < MAX_DEVICES; d++) {
				atomic_store(&p->trying[d], 0);
				atomic_store(&p->held[d], 0);
				atomic_store(&p->overhead[d], 0);
				atomic_store(&p->swapped[d], 0);
				atomic_store(&p->busy_ns[d], 0);
			}
			atomic_store(&p->owner, me);
			return i;
		}
		reap_in_time(r);
	}
	return -1;
}

void container_leave(struct container_file *r, int process)
{
	atomic_store(&r->process[process].owner, 0);
}

/* Bytes charged by all living processes, with or without what they are just trying to take. */
static uint64_t container_sum(struct container_file *r, int device, bool with_trying)
{
	uint64_t sum = 0;

	for (int i = 0; i < MAX_PROCESSES; i++) {
		struct container_process *p = &r->process[i];
		uint64_t owner = atomic_load(&p->owner);
		if (!owner || (owner & STARTING))
			continue;
		/* "trying" is read first: bytes move from there to "held", and may be seen twice but never not at all. */
		if (with_trying)
			sum += atomic_load(&p->trying[device]);
		sum += atomic_load(&p->held[device]) + atomic_load(&p->overhead[device]);
	}
	return sum;
}

uint64_t container_used(struct container_file *r, int device)
{
	return container_sum(r, device, false);
}

bool container_charge(struct container_file *r, int process, int device, uint64_t bytes, uint64_t limit)
{
	struct container_process *p = &r->process[process];
	bool reaped = false;

	if (bytes > limit)
		return false;
	for (int tries = 0; tries < 10000; tries++) {
		atomic_fetch_add(&p->trying[device], bytes);
		if (container_sum(r, device, true) <= limit) {
			atomic_fetch_add(&p->held[device], bytes);
			atomic_fetch_sub(&p->trying[device], bytes);
			return true;
		}
		atomic_fetch_sub(&p->trying[device], bytes);
		/* Another's try may have been in the way: only what is really held makes the answer final. */
		if (container_sum(r, device, false) > limit - bytes) {
			if (reaped || !reap_in_time(r))
				return false;
			reaped = true;
		}
		for (int spin = (process + tries) % 7; spin >= 0; spin--)
			sched_yield();
	}
	return false;
}

void container_refund(struct container_file *r, int process, int device, uint64_t bytes)
{
	_Atomic uint64_t *mine = &r->process[process].held[device];
	uint64_t held = atomic_load(mine);

	while (!atomic_compare_exchange_weak(mine, &held, held > bytes ? held - bytes : 0))
		;
}

void container_set_overhead(struct container_file *r, int process, int device, uint64_t bytes)
{
	atomic_store(&r->process[process].overhead[device], bytes);
}

void container_export(struct container_file *r, uint64_t key, int process)
{
	uint64_t me = atomic_load(&r->process[process].owner);

	for (int i = 0; i < MAX_EXPORTS; i++) {
		uint64_t there = atomic_load(&r->export[i].key);
		if (there && there != key && !process_dead(atomic_load(&r->export[i].owner)))
			continue;
		if (there == key || atomic_compare_exchange_strong(&r->export[i].key, &there, key)) {
			atomic_store(&r->export[i].owner, me);
			return;
		}
	}
}

bool container_exported(struct container_file *r, uint64_t key)
{
	for (int i = 0; i < MAX_EXPORTS; i++) {
		if (atomic_load(&r->export[i].key) == key) {
			uint64_t owner = atomic_load(&r->export[i].owner);
			return owner && !process_dead(owner);
		}
	}
	return false;
}

bool container_first_context(struct container_file *r, int process, int device)
{
	uint64_t me = atomic_load(&r->process[process].owner), maker = atomic_load(&r->context_maker[device]);

	if (atomic_load(&r->context_bytes[device]))
		return false;
	return (!maker || process_dead(maker)) && atomic_compare_exchange_strong(&r->context_maker[device], &maker, me);
}

void container_context_known(struct container_file *r, int process, int device, uint64_t bytes)
{
	uint64_t me = atomic_load(&r->process[process].owner);

	if (bytes)
		atomic_store(&r->context_bytes[device], bytes);
	atomic_compare_exchange_strong(&r->context_maker[device], &me, 0);
}
