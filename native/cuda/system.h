/* Clock, threads, futexes and hashes. */
#ifndef ELASTIC_SYSTEM_H
#define ELASTIC_SYSTEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int64_t now_ns(void);
void sleep_ns(int64_t ns);
bool thread_start(void *(*run)(void *), void *arg);
int futex_wait(_Atomic unsigned *word, unsigned value, int64_t ns);
void futex_wake(_Atomic unsigned *word);
/* FNV-1a, never 0. The shared files hold such hashes: it is part of their format. */
uint64_t hash_bytes(const void *bytes, size_t size);
uint64_t hash_text(const char *s);

#endif
