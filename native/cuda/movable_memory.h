/* Allocations that can be moved to the host and back. */
#ifndef ELASTIC_MOVABLE_MEMORY_H
#define ELASTIC_MOVABLE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include "ledger.h"
#include "session.h"

CUresult movable_alloc(struct device *d, CUdeviceptr *ptr, uint64_t bytes, bool *card_full);
void movable_free(struct holding *h);
bool movable_owns(CUdeviceptr ptr, CUdeviceptr *base, size_t *size);

/* ---- for swap.c, which moves the blocks ---- */

struct chunk {
	CUmemHandle handle;
	uint64_t size;
	bool out;
	uint64_t at; /* in the host pool, while out */
};

/* A range of addresses with memory behind it; if small, shared by many allocations. */
struct block {
	struct device *device;
	CUcontext ctx;
	CUdeviceptr base;
	uint64_t size;
	unsigned chunks;
	struct chunk *chunk;
	unsigned char *grains; /* small blocks: which grains are taken */
	unsigned taken;
	struct block *next;
};

extern struct block *blocks;
void blocks_lock(void);
void blocks_unlock(void);
/* Memory behind a chunk's addresses; without it, *r says why. */
bool chunk_make(struct block *b, struct chunk *c, CUdeviceptr at, CUresult *r);
void chunk_free(struct block *b, struct chunk *c, CUdeviceptr at);
void blocks_fork_child(void);

#define EACH_CHUNK(b, c, ptr) \
	for (struct block *b = blocks; b; b = b->next) \
		for (CUdeviceptr ptr = b->base, step_ = 0; step_ < b->chunks; ptr += b->chunk[step_++].size) \
			for (struct chunk *c = &b->chunk[step_]; c; c = NULL)

#endif
