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
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "container_file.h"
#include "shared_file.h"
#include "system.h"

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
	return ((start << PID_BITS) & ~WAITING) | (uint64_t)pid;
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
	return ((start << PID_BITS) & ~WAITING) != (owner & ~WAITING & ~(((uint64_t)1 << PID_BITS) - 1));
}

/* ---- the dead ---- */

/* What others have of a process counts in their rows from now on. */
static void imports_count(struct container_file *r, uint64_t of)
{
	for (int i = 0; i < MAX_PROCESSES; i++) {
		uint64_t owner = atomic_load(&r->process[i].owner);
		if ((owner & WAITING) && atomic_load(&r->process[i].of) == of)
			atomic_compare_exchange_strong(&r->process[i].owner, &owner, owner & ~WAITING);
	}
}

uint64_t container_reap(struct container_file *r)
{
	uint64_t cleared = 0;

	for (int i = 0; i < MAX_PROCESSES; i++) {
		uint64_t owner = atomic_load(&r->process[i].owner);
		if (!owner || !process_dead(owner))
			continue;
		imports_count(r, owner & ~WAITING);
		cleared += atomic_compare_exchange_strong(&r->process[i].owner, &owner, 0);
	}
	return cleared;
}

void container_forget_own(struct container_file *r)
{
	uint64_t me = process_word(getpid());

	imports_count(r, me);
	for (int i = 0; i < MAX_PROCESSES; i++) {
		uint64_t owner = atomic_load(&r->process[i].owner);
		if ((owner & ~WAITING) == me)
			atomic_compare_exchange_strong(&r->process[i].owner, &owner, 0);
	}
	imports_count(r, me); /* what was written down meanwhile: this process is alive */
}

/* A free row for a process, which does not count yet; false if it is not free. */
static bool take_row(struct container_process *p, uint64_t owner)
{
	uint64_t free_row = 0;

	if (!atomic_compare_exchange_strong(&p->owner, &free_row, owner | WAITING))
		return false;
	for (int d = 0; d < MAX_DEVICES; d++) {
		atomic_store(&p->trying[d], 0);
		atomic_store(&p->held[d], 0);
		atomic_store(&p->overhead[d], 0);
		atomic_store(&p->swapped[d], 0);
		atomic_store(&p->busy_ns[d], 0);
	}
	return true;
}

int container_join(struct container_file *r)
{
	uint64_t me = process_word(getpid());

	/* The dead are cleared away before a row is taken that gets no compute. */
	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < (pass ? MAX_PROCESSES : LOW_PROCESSES); i++) {
			struct container_process *p = &r->process[i];
			if (!take_row(p, me))
				continue;
			atomic_store(&p->owner, me);
			return i;
		}
		container_reap(r);
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
		if (!owner_counts(owner))
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
			if (reaped || !container_reap(r))
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

uint64_t container_exporter(struct container_file *r, uint64_t key)
{
	for (int i = 0; i < MAX_EXPORTS; i++) {
		if (atomic_load(&r->export[i].key) == key) {
			uint64_t owner = atomic_load(&r->export[i].owner);
			return owner && !process_dead(owner) ? owner : 0;
		}
	}
	return 0;
}

/* ---- what others pay for ---- */

static pthread_mutex_t own_imports = PTHREAD_MUTEX_INITIALIZER; /* rows of imports of this process come and go */

uint64_t container_word(struct container_file *r, pid_t pid)
{
	for (int i = 0; i < MAX_PROCESSES; i++) {
		uint64_t owner = atomic_load(&r->process[i].owner);
		if (owner_counts(owner) && container_pid(owner) == (uint64_t)pid && !process_dead(owner))
			return owner;
	}
	return 0;
}

/* From the end, where processes come last: they have one for each process that they have something of. */
static int imports_of(struct container_file *r, uint64_t me, uint64_t of)
{
	for (int i = MAX_PROCESSES - 1; i >= 0; i--)
		if (atomic_load(&r->process[i].owner) == (me | WAITING) && atomic_load(&r->process[i].of) == of)
			return i;
	for (int i = MAX_PROCESSES - 1; i >= LOW_PROCESSES; i--) {
		if (!take_row(&r->process[i], me))
			continue;
		atomic_store(&r->process[i].of, of);
		return i;
	}
	return -1;
}

int container_import(struct container_file *r, int process, uint64_t of, int device, uint64_t bytes)
{
	int row;

	pthread_mutex_lock(&own_imports);
	row = imports_of(r, atomic_load(&r->process[process].owner), of);
	if (row >= 0)
		atomic_fetch_add(&r->process[row].held[device], bytes);
	pthread_mutex_unlock(&own_imports);
	/* It is written down first: who clears the other away from now on sees it. */
	if (row >= 0 && container_word(r, (pid_t)container_pid(of)) == of)
		return row;
	if (row >= 0)
		container_import_end(r, row, device, bytes);
	return -1;
}

void container_import_end(struct container_file *r, int row, int device, uint64_t bytes)
{
	uint64_t left = 0;

	pthread_mutex_lock(&own_imports);
	container_refund(r, row, device, bytes);
	for (int d = 0; d < MAX_DEVICES; d++)
		left += atomic_load(&r->process[row].held[d]);
	if (!left)
		atomic_store(&r->process[row].owner, 0);
	pthread_mutex_unlock(&own_imports);
}

bool container_import_left(struct container_file *r, int row)
{
	return owner_counts(atomic_load(&r->process[row].owner)) || process_dead(atomic_load(&r->process[row].of));
}

void container_fork_child(void) { pthread_mutex_init(&own_imports, NULL); }

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
