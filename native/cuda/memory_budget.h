/* Device memory against the container's limit. */
#ifndef ELASTIC_MEMORY_BUDGET_H
#define ELASTIC_MEMORY_BUDGET_H

#include <stdbool.h>
#include <stdint.h>
#include "ledger.h"
#include "session.h"

/* Takes memory out of the container's limit, before the driver is asked for it; false if it does not fit. */
bool memory_charge(struct device *d, uint64_t bytes);
void memory_refund(struct device *d, uint64_t bytes);
/* What the driver takes for a request: big ones come in pages of 2 MiB. */
uint64_t charged_size(uint64_t bytes);
/* Registers what frees memory that is charged and unused, for when a charge does not fit. */
void memory_on_full(void (*reclaim)(struct device *d));

/* Writes down what was just allocated and is charged already. */
void holding_note(uint64_t key, enum holding_kind kind, struct device *d, uint64_t bytes);
/* Refunds and drops a holding; under the ledger's lock. */
void holding_give_back(struct holding *h);
/* It no longer waits in a row of imports (container_file.h). */
void holding_import_end(struct holding *h);
/*
 * Frees what is held under a key: out of the ledger first, for the driver may give the same address to another thread
 * as soon as it is free. False if nothing was held.
 */
bool holding_drop_begin(uint64_t key, enum holding_kind kind, struct holding *held);
void holding_drop_end(struct holding *held, CUresult r);
#define HOLDING_DROP(key, kind, call, result) \
	(holding_drop_begin(key, kind, &held_) ? (result = (call), holding_drop_end(&held_, result), true) : false)

#endif
