/* Pinned host memory for what leaves the card. */
#ifndef ELASTIC_HOST_POOL_H
#define ELASTIC_HOST_POOL_H

#include <stdbool.h>
#include <stdint.h>

bool host_prepare(uint64_t bytes);
bool host_take(uint64_t bytes, uint64_t *at);
/* The longest piece of [at, at+bytes) that lies in one stretch of memory. */
void *host_piece(uint64_t at, uint64_t bytes, uint64_t *length);
void host_reset(void);
uint64_t host_prepared(void);
void host_fork_child(void);

#endif
