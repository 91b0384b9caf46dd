/* The file of one container: what its processes hold together of each card. */
#ifndef ELASTIC_CONTAINER_FILE_H
#define ELASTIC_CONTAINER_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "constants.h"

#define MAX_PROCESSES 1024
#define MAX_EXPORTS 1024
#define LOW_PROCESSES 256   /* rows that are filled first: each has its own in the request files */

#define WAITING ((uint64_t)1 << 63) /* a row with this in its owner word does not count yet */
struct container_process {
	_Atomic uint64_t owner;                   /* 0 free; else pid and start time of whose row it is, and the waiting bit */
	_Atomic uint64_t trying[MAX_DEVICES];     /* bytes it is about to take, if they fit */
	_Atomic uint64_t held[MAX_DEVICES];       /* bytes charged for allocations */
	_Atomic uint64_t overhead[MAX_DEVICES];   /* bytes charged for contexts and code */
	_Atomic uint64_t swapped[MAX_DEVICES];    /* bytes now in host memory */
	union {
		_Atomic uint64_t busy_ns[MAX_DEVICES];    /* card time used */
		_Atomic uint64_t of;                      /* of a row of imports: the process that pays for them, as its owner word */
	};
};
struct container_file {
	_Atomic uint64_t version;
	_Atomic uint64_t device[MAX_DEVICES];     /* hash of the UUID, in order of appearance */
	_Atomic uint64_t context_bytes[MAX_DEVICES];  /* what a context was last seen to take */
	_Atomic uint64_t context_maker[MAX_DEVICES];  /* the process that is making the first one */
	struct { _Atomic uint64_t key, owner; } export[MAX_EXPORTS];  /* IPC handles given out, and the exporter */
	struct container_process process[MAX_PROCESSES];
};
void container_export(struct container_file *r, uint64_t key, int process);
/* The living process of this container that gave this handle out, as its owner word; 0: there is none. */
uint64_t container_exporter(struct container_file *r, uint64_t key);
/*
 * Memory of another process that this one has: it counts in the row of that one, as long as that row does. Until then it
 * waits here in a row of its own, and counts from when the other is cleared away, whoever does that: so what is on the card
 * is never counted nowhere, and its new owner need not be there in time. -1: that process has ended, or there is no row left.
 */
int container_import(struct container_file *r, int process, uint64_t of, int device, uint64_t bytes);
void container_import_end(struct container_file *r, int row, int device, uint64_t bytes);
/* Whether nobody else pays for what is in a row of imports. */
bool container_import_left(struct container_file *r, int row);
/* A living process of this container that has a row, as its owner word; 0: it has none. */
uint64_t container_word(struct container_file *r, pid_t pid);
static inline bool owner_counts(uint64_t owner) { return owner && !(owner & WAITING); }
void container_fork_child(void);
/* One process at a time makes the container's first context on a card, while it is not known how much one takes. */
bool container_first_context(struct container_file *r, int process, int device);
void container_context_known(struct container_file *r, int process, int device, uint64_t bytes);
struct container_file *container_open(const char *path, char *why, size_t why_size);
int container_device(struct container_file *r, const char *uuid);
/* What this process had as another program, before it became this one, is no more, or others have it. */
void container_forget_own(struct container_file *r);
int container_join(struct container_file *r);
void container_leave(struct container_file *r, int process);
uint64_t container_used(struct container_file *r, int device);
/* Clears the rows of the dead; returns how many. */
uint64_t container_reap(struct container_file *r);
bool container_charge(struct container_file *r, int process, int device, uint64_t bytes, uint64_t limit);
void container_refund(struct container_file *r, int process, int device, uint64_t bytes);
void container_set_overhead(struct container_file *r, int process, int device, uint64_t bytes);
uint64_t container_pid(uint64_t owner);
/* Pid and start time of a process in one word, by which it is known from another that gets its pid later. */
uint64_t process_word(pid_t pid);
bool process_dead(uint64_t word);
_Static_assert(sizeof(struct container_file) == 680328 && offsetof(struct container_file, process) == 16776, "the layout is shared with older libraries");

#endif
