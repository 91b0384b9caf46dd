/* Launches wait at a gate for their process's turn on the card. */
#ifndef ELASTIC_COMPUTE_LIMIT_H
#define ELASTIC_COMPUTE_LIMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include "driver_types.h"
#include "memory_calls.h"
#include "session.h"
#include "steps.h"

struct gate {
	_Atomic bool on;
	_Atomic unsigned state;       /* GATE_*; futex */
	_Atomic unsigned want;        /* launches are waiting; futex */
	_Atomic unsigned inside;      /* launches between enter and leave */
	_Atomic uint64_t launches;
	uint64_t counted;             /* of those, by the thread that counts what is used */
	_Atomic uint64_t waited_ns;   /* by launches, for the turn */
	_Atomic int64_t entered;      /* when the first that waited for this turn came in; 0 before */
	_Atomic int64_t closing_since, trickled;
	_Atomic bool space;           /* launches do not wait: what is in flight is only counted */
	_Atomic bool tracked;
	struct steps steps;
	_Atomic bool said_short;      /* and whether the arbiter was told that they are short */
	_Atomic(const char *) refusal; /* why there are no launches; NULL: there are */
	int row;                      /* in the request and decision files */
	struct device *device;
};
enum { GATE_CLOSED, GATE_OPEN, GATE_CLOSING };
/* Takes over new limits; also called twice a second, for a neighbour may have come or gone. */
void compute_limit_reload(struct device *d);
void compute_limit_fork_child(void);
int launch_enter(struct device *d, CUstream stream);
void launch_leave(struct device *d, CUstream stream, int pass);
/* The program has waited for what it launched. */
void program_waited(void);
void compute_limit_end(struct device *d);
/* Whether the arbiter has looked lately. */
bool arbiter_there(struct device *d, int64_t now);
/* What this process tells the arbiter about its memory; NULL before it can. */
static inline struct memory_request *own_memory(struct device *d)
{
	struct gate *g = atomic_load(&d->gate);
	return g && d->request && g->row < MAX_ROWS ? &d->request->memory[g->row] : NULL;
}

#define LAUNCH(stream, call) do { \
	struct device *device_ = device_current(); \
	CUstream stream_ = (stream); \
	int pass_ = launch_enter(device_, stream_); \
	CUresult result_ = pass_ & PASS_REFUSED ? CUDA_ERROR_NOT_PERMITTED : (call); \
	if (pass_) \
		launch_leave(device_, stream_, pass_); \
	return result_; \
} while (0)

#define FETCH_CALL(call) do { \
	int pass_ = memory_call_enter(); \
	CUresult result_ = (call); \
	memory_call_leave(pass_); \
	program_waited(); \
	return result_; \
} while (0)

#endif
