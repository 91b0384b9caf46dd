/* What is in flight in the contexts that work with memory which moves. */
#ifndef ELASTIC_SETTLE_H
#define ELASTIC_SETTLE_H

#include <stdbool.h>
#include <stdint.h>
#include "driver_types.h"

/* Each has a thread of its own, so that neither waits for the other. */
enum settle_for { SETTLE_FOR_OWN, SETTLE_FOR_OTHERS, SETTLES };
/*
 * Waits until nothing is in flight; false if that takes until the deadline. The calls are held back meanwhile. *r is what
 * the driver says of it.
 */
bool settle(enum settle_for why, int64_t deadline, CUresult *r);
/*
 * Between the two that context may end: nobody begins to wait for it, and a wait that was given up, and goes on, has left it;
 * or goes on in it still at that time.
 */
void settle_pause(CUcontext ctx, int64_t deadline);
void settle_resume(void);
void settle_fork_child(void);

#endif
