/* Virtual memory that the program manages itself, where it can be moved: cuMemCreate and what follows it. */
#ifndef ELASTIC_PROGRAM_MEMORY_H
#define ELASTIC_PROGRAM_MEMORY_H

#include <stdbool.h>
#include "session.h"

struct block;

/*
 * The program's handle is a number of ours: the driver's changes with every move. All of these answer false for a handle
 * or an address that is not of this kind, which the driver then gets as it is.
 */
CUresult program_create(struct device *d, CUmemHandle *handle, size_t size, const CUmemProp *prop, bool *card_full);
bool program_release(CUmemHandle handle);
/* Both with the lock of blocks.h held, around the driver's call. */
bool program_map(CUmemHandle handle, CUdeviceptr at, size_t size, size_t offset, unsigned long long flags, CUresult *r);
bool program_unmapped(CUdeviceptr at, uint64_t *size);
bool program_retain(CUdeviceptr addr, CUmemHandle *handle);
/* Another handle of the program's on a block, its first one on one that was imported. Both with the lock held. */
bool program_adopt(struct block *b, CUmemHandle *handle);
struct block *program_block(CUmemHandle handle);
/* Frees what the program has given back, and other processes have now, too. */
void program_settle(void);
/* The driver's handle, until calls are let through after the next move. */
bool program_handle(CUmemHandle handle, CUmemHandle *real);
/* The driver's handle was given away; false if it is none of these. */
bool program_given(CUmemHandle handle);

#endif
