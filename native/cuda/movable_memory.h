/* Allocations that can be moved to the host and back. */
#ifndef ELASTIC_MOVABLE_MEMORY_H
#define ELASTIC_MOVABLE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include "ledger.h"
#include "session.h"

struct block;

CUresult movable_alloc(struct device *d, CUdeviceptr *ptr, uint64_t bytes, bool *card_full);
/* Waits as the driver does until nothing can use it, or leaves that for when no capture is open; the second does not wait. */
void movable_free(struct holding *h);
void movable_drop(struct holding *h);
/* What was left, if no capture is open. */
void movable_free_late(void);
void movable_forget_context(CUcontext ctx);
void movable_fork_child(void);
/* Frees what the program has given back, and other processes have now, too. */
void movable_settle(void);
/* Where an address lies: the block, and the place of the allocation in it; NULL if it is none of these. */
struct block *movable_block(CUdeviceptr ptr, uint64_t *offset, uint64_t *size);
bool movable_owns(CUdeviceptr ptr, CUdeviceptr *base, size_t *size);

#endif
