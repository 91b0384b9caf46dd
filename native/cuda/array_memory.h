/* CUDA arrays that can be moved: the driver makes them without memory, and ours is put behind them. */
#ifndef ELASTIC_ARRAY_MEMORY_H
#define ELASTIC_ARRAY_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include "blocks.h"
#include "session.h"

/*
 * levels 0: an array without levels. False if this one cannot be made without memory, or not be copied by us: then it
 * is the driver's own.
 */
bool array_make(struct device *d, void **array, const CUarray3DDesc *desc, unsigned levels, CUresult *r, bool *card_full);
/* Calls the driver's function for one of these; false if it is none. */
bool array_destroy(void *array, CUresult (*real)(void *), CUresult *r);
/* Whether it is one of these, or a level of one. */
bool array_is_ours(void *array);
bool array_level(CUmipmappedArray array, unsigned n, CUarray *level);
void arrays_forget_context(CUcontext ctx);
/* Begins to copy the arrays of a block to the host or back. */
CUresult arrays_copy(struct block *b, struct chunk *c, CUstream stream, bool out);

#endif
