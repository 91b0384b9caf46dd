/* Stream-ordered memory that can be moved: cuMemAllocAsync and its pools, in a container that can be swapped. */
#ifndef ELASTIC_POOL_MEMORY_H
#define ELASTIC_POOL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include "session.h"

/* The stream is the thread's own where the caller's function means that by 0. */
CUresult pooled_alloc(struct device *d, CUmemPool pool, CUdeviceptr *ptr, uint64_t bytes, CUstream stream, bool *card_full);
/* False if it is not memory of this kind. */
bool pooled_free(CUdeviceptr ptr, CUstream stream);
bool pooled_owns(CUdeviceptr ptr);
/* It is freed in another way than by its pool: from now on it is an allocation like any other. */
void pooled_disown(CUdeviceptr ptr);
/* A pool of the driver's that this process exports cannot be one of ours. */
void pooled_export(CUmemPool pool);
bool pooled_exported(CUmemPool pool);
/* What the program sets and asks of a pool; false if the driver is to answer. */
bool pooled_get(CUmemPool pool, int attribute, uint64_t *value);
void pooled_set(CUmemPool pool, int attribute, uint64_t value);
/* Lets go of what is free, down to so much that the pool has in all. */
void pooled_trim(CUmemPool pool, uint64_t retain);
/* The same for all pools; wait: also what is still in use on a stream that has freed it. */
void pooled_trim_all(bool wait);
void pooled_destroy(CUmemPool pool);
void pooled_forget_stream(CUstream stream);
void pooled_forget_context(CUcontext ctx);
void pooled_fork_child(void);

#endif
