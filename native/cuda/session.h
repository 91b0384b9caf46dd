/* This process under the library: its limits, its row in the container's file, its cards. */
#ifndef ELASTIC_SESSION_H
#define ELASTIC_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include "container_file.h"
#include "driver_types.h"
#include "limits_file.h"
#include "turn_files.h"

struct gate;
struct device {
	CUdevice cu;
	int index;                    /* in the container's file */
	char uuid[48];
	_Atomic uint64_t limit;
	_Atomic unsigned share;
	_Atomic bool lend;
	_Atomic bool space;           /* it runs at once with others, under MPS, and takes no turns */
	bool posix_fd;                /* its memory can be given to another process as a descriptor */
	bool mps;                     /* what this process does on the card goes through MPS */
	struct request_file *request; /* what we ask of the arbiter; NULL: there is no compute on this card */
	struct decision_file *decision; /* what it answers; mapped read-only */
	_Atomic(struct gate *) gate;
	_Atomic(CUcontext) primary;   /* the card's own, while it is active; NULL: not yet, or no more */
	_Atomic int retained;         /* how often the primary context was asked for */
	_Atomic uint64_t unseen;      /* of what is charged: what the driver may not see as this process's */
	_Atomic uint64_t changes;     /* allocations and frees so far */
	_Atomic int growing;          /* pools that the driver may be growing now, beyond what is charged */
	_Atomic int64_t managed;      /* managed allocations now held */
	_Atomic uint64_t lower, lower_at; /* a lower overhead seen once, and after how many changes */
};
struct session {
	_Atomic bool started;
	struct container_file *container;
	_Atomic int process;          /* its row in the container's file; -1 before it joined */
	int devices;
	struct device device[MAX_DEVICES];
	_Atomic bool swap, oversubscribe, control_any;
	_Atomic unsigned quantum_ms;
	char container_name[64];
};
extern struct session session;

/* What the parts above do when the session changes. They are registered once, by the first session_start. */
struct session_parts {
	void (*started)(void);                   /* this process is under the limits now */
	void (*limits_changed)(struct device *d);
	void (*forked)(void);                    /* in the child of a fork: nothing of the parent's is ours */
};
/* True once this process is under the limits; false means it gets no GPU. */
bool session_start(const struct session_parts *parts);
/* What NVML needs in a process that never calls CUDA: the grant and the container's file, without a row of its own. */
bool session_view(struct limits *l);
/* Reads the limits again if the file changed; looks at most every 10 ms unless forced. */
void session_reload(bool force);
struct device *device_of(CUdevice dev);
struct device *device_current(void);
static inline struct container_process *session_row(void) { return &session.container->process[atomic_load(&session.process)]; }

#endif
