/* Calls that touch device memory wait here while the process is swapped out. */
#ifndef ELASTIC_MEMORY_CALLS_H
#define ELASTIC_MEMORY_CALLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include "session.h"

#define HELD_TOGETHER (1u << 16) /* all processes of the container wait: past this reason, and no other, a call may be let through */
struct memory_calls {
	_Atomic unsigned held;    /* for how many reasons calls must wait now, each 1 or HELD_TOGETHER; futex */
	_Atomic unsigned inside;  /* calls now inside */
	_Atomic bool wanted;      /* a call waits: the process wants its memory back */
	_Atomic bool used;        /* a call was made since somebody looked */
	_Atomic unsigned waiting; /* calls that wait for the memory now */
	_Atomic int passes;       /* so many calls may go on, though they are held back; futex of held */
};
extern struct memory_calls memory_calls;

/* What a call must undo when it leaves. */
enum { PASS_MEMORY = 1, PASS_TURN = 2, PASS_REFUSED = 4, PASS_LET = 8 };
int memory_call_wait(void);
/* One that was let through a hold waits for its turn inside: it would not be let through again in time. */
static inline bool memory_call_stays(int pass)
{
	return (pass & PASS_LET) && atomic_load(&memory_calls.held) % HELD_TOGETHER == 0;
}
static inline int memory_call_enter(void)
{
	if (!atomic_load_explicit(&session.swap, memory_order_relaxed))
		return 0;
	atomic_fetch_add(&memory_calls.inside, 1);
	atomic_store_explicit(&memory_calls.used, true, memory_order_relaxed);
	return atomic_load(&memory_calls.held) ? memory_call_wait() : PASS_MEMORY;
}
/* The same for what may be left for later: false if it would have to wait. */
static inline bool memory_call_try(void)
{
	atomic_fetch_add(&memory_calls.inside, 1);
	if (!atomic_load(&memory_calls.held))
		return true;
	atomic_fetch_sub(&memory_calls.inside, 1);
	return false;
}
static inline void memory_call_leave(int pass)
{
	if (pass & PASS_MEMORY)
		atomic_fetch_sub(&memory_calls.inside, 1);
}
/*
 * Holds back every call that touches memory, and waits until none is inside; false after the deadline. What was held back
 * twice, for memory of its own and for that of another process, goes on when it was released twice.
 */
bool memory_calls_hold(int64_t deadline);
void memory_calls_release(void);
/* For HELD_TOGETHER, without waiting; and lets one call through, if one waits or comes within that time. */
void memory_calls_hold_together(void);
void memory_calls_release_together(void);
void memory_calls_pass_one(int64_t within);
void memory_calls_fork_child(void);
/* How long no call was made, as far as is known from looks at it now and then. */
int64_t memory_calls_idle(int64_t now);

#define MEMORY_CALL(call) do { \
	int pass_ = memory_call_enter(); \
	CUresult result_ = (call); \
	memory_call_leave(pass_); \
	return result_; \
} while (0)

#endif
