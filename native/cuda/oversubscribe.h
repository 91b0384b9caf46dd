/* Cards that are granted to more memory than they have. */
#ifndef ELASTIC_OVERSUBSCRIBE_H
#define ELASTIC_OVERSUBSCRIBE_H

#include <stdbool.h>
#include <stdint.h>

struct device;
/* Asks a neighbour to move out; false if there is none that could. */
bool oversubscribe_ask(struct device *d, uint64_t bytes);
/* This process has what it asked for. */
void oversubscribe_satisfied(struct device *d);
void oversubscribe_serve(void);

#endif
