/* Cards that are granted to more memory than they have. */
#ifndef ELASTIC_OVERSUBSCRIBE_H
#define ELASTIC_OVERSUBSCRIBE_H

#include <stdbool.h>
#include <stdint.h>

struct device;
/* Asks a neighbour to move out; false if there is none that could. */
bool oversubscribe_ask(struct device *d, uint64_t bytes);
/*
 * The card was too full for an allocation: asks, and waits a moment; false if it is no use to try again. *alone is 0 at
 * first. No call may be on its way meanwhile: this process may be moved out itself.
 */
bool oversubscribe_wait(struct device *d, uint64_t bytes, int *alone);
/* This process has what it asked for. */
void oversubscribe_satisfied(struct device *d);
void oversubscribe_serve(void);

#endif
