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

struct container_process {
	_Atomic uint64_t owner;                   /* 0 free; else pid, start time and the starting bit */
	_Atomic uint64_t trying[MAX_DEVICES];     /* bytes it is about to take, if they fit */
	_Atomic uint64_t held[MAX_DEVICES];       /* bytes charged for allocations */
	_Atomic uint64_t overhead[MAX_DEVICES];   /* bytes charged for contexts and code */
	_Atomic uint64_t swapped[MAX_DEVICES];    /* bytes now in host memory */
	_Atomic uint64_t busy_ns[MAX_DEVICES];    /* card time used */
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
/* Whether a living process of this container gave this handle out. */
bool container_exported(struct container_file *r, uint64_t key);
/* One process at a time makes the container's first context on a card, while it is not known how much one takes. */
bool container_first_context(struct container_file *r, int process, int device);
void container_context_known(struct container_file *r, int process, int device, uint64_t bytes);
struct container_file *container_open(const char *path, char *why, size_t why_size);
int container_device(struct container_file *r, const char *uuid);
/* What this process had as another program, before it became this one, is no more. */
void container_forget_own(struct container_file *r);
int container_join(struct container_file *r);
void container_leave(struct container_file *r, int process);
uint64_t container_used(struct container_file *r, int device);
/* Clears the rows of those that this process has known to be dead for a while; returns how many. */
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
