/* Memory on the card that can be moved to the host and back: what swap.c moves. */
#ifndef ELASTIC_BLOCKS_H
#define ELASTIC_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include "session.h"

/* What the driver gives and takes back in one piece. */
struct chunk {
	CUmemHandle handle; /* 0 while it is not on the card */
	uint64_t size;
	bool out;
	uint64_t at; /* in the host pool, while out */
};

/* Where the program has mapped memory of its own, and which cards may use it there. */
struct mapping {
	CUdeviceptr at;
	uint64_t size, offset;
	unsigned char access[MAX_DEVICES]; /* as it was when the memory left */
	struct mapping *next;
};

/* One level of an array, as it is copied: bytes in a row, rows in a slice, slices. */
struct array_level {
	CUarray array;
	uint64_t row, rows, slices;
};

/* An array has no address: memory is put behind its handle, at a place of a block. */
struct array {
	void *handle;
	bool mipmapped;
	struct block *block;
	uint64_t at, size, align;
	unsigned levels;
	struct array_level *level;
	struct array *next;     /* in its block, by place */
};

/* A process that has a block of ours, by pid and start time; whether it has all of it, or let go of it. */
struct importer { uint64_t process; bool there; struct importer *next; };
struct import;

/* Memory behind a range of addresses that we chose, or that the program maps itself. */
struct block {
	struct device *device;
	CUcontext ctx;          /* for its copies; NULL: any other of its card */
	CUmemProp prop;
	CUdeviceptr base;       /* of the program's own: where it can be copied, while it is open */
	uint64_t size;
	unsigned chunks;
	struct chunk *chunk;
	unsigned char *grains;  /* small allocations share a block: which grains are taken */
	unsigned taken;
	bool program;           /* the program made it, as one chunk, */
	int refs;               /* holds on to its handle so many times, */
	struct mapping *maps;   /* and has it mapped here */
	bool window;            /* base is a mapping of ours, for the copy alone */
	bool tiles;             /* it has no addresses, but these arrays, */
	struct array *arrays;   /* as one chunk */
	uint64_t name;          /* under which other processes of the container ask for it; 0: they cannot */
	struct importer *importers; /* those that have it: it stays while there is one */
	bool given;             /* by the driver's own handle, which may be anywhere: it is charged until this process ends */
	bool freed;             /* the program has given it back */
	struct import *import;  /* it is another process's: mapped here, and moved there */
	struct block *next, **link;
};

extern struct block *blocks;
void blocks_lock(void);
void blocks_unlock(void);
/* Both with the lock held. */
void block_link(struct block *b);
void block_unlink(struct block *b);
/* Memory behind a chunk's addresses; without it, *r says why. */
bool chunk_make(struct block *b, struct chunk *c, CUdeviceptr at, CUresult *r);
void chunk_free(struct block *b, struct chunk *c, CUdeviceptr at);
/* It is on the host now, and counted so; it is on the card again. handle 0 marks the first. */
void chunk_leave(struct block *b, struct chunk *c, CUdeviceptr at);
void chunk_back(struct block *b, struct chunk *c);
uint64_t blocks_out(void);
/* The same for memory that is there already: its handle, which it takes back if it cannot map it. */
bool chunk_put(struct block *b, struct chunk *c, CUdeviceptr at, CUmemHandle handle, CUresult *r);
/* Remembers how the program may use its mappings, before they go. */
void block_note_access(struct block *b);
/* The memory of a chunk behind one of its arrays. */
CUresult array_map(const struct array *a, const struct chunk *c);
void array_unmap(const struct array *a);
/* Until it is closed again, all of a block lies at its base for a copy. */
CUresult block_open(struct block *b);
void block_close(struct block *b);
CUcontext block_context(const struct block *b); /* with the lock held */
/* What the program manages itself, and what others have, outlives the context it was made in. */
void blocks_forget_context(CUcontext ctx);
void blocks_fork_child(void);

#define EACH_CHUNK(b, c, ptr) \
	for (struct block *b = blocks; b; b = b->next) \
		for (CUdeviceptr ptr = b->base, step_ = 0; step_ < b->chunks; ptr += b->chunk[step_++].size) \
			for (struct chunk *c = &b->chunk[step_]; c; c = NULL)

#endif
