/* The memory the driver takes for itself: contexts and code. */
#ifndef ELASTIC_OVERHEAD_H
#define ELASTIC_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

struct device;
void overhead_refresh(struct device *d);
void overhead_set(struct device *d, uint64_t bytes);
bool has_context(struct device *d);
/* Memory for a context is charged before the driver makes it: what the last one took, or alone if there was none. */
bool context_begin(struct device *d, uint64_t *taken);
/* What it took is read from the driver; false if that is more than the limit. */
bool context_end(struct device *d, uint64_t taken, bool made);

#endif
