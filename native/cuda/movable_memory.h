/* Allocations that can be moved to the host and back. */
#ifndef ELASTIC_MOVABLE_MEMORY_H
#define ELASTIC_MOVABLE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include "ledger.h"
#include "session.h"

struct block;

CUresult movable_alloc(struct device *d, CUdeviceptr *ptr, uint64_t bytes, bool *card_full);
/* Waits as the driver does until nothing can use it; the second does not. */
void movable_free(struct holding *h);
void movable_drop(struct holding *h);
/* Frees what the program has given back, and other processes have now, too. */
void movable_settle(void);
/* Where an address lies: the block, and the place of the allocation in it; NULL if it is none of these. */
struct block *movable_block(CUdeviceptr ptr, uint64_t *offset, uint64_t *size);
bool movable_owns(CUdeviceptr ptr, CUdeviceptr *base, size_t *size);

#endif
