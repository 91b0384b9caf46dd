/* What this process holds of the cards, by pointer or handle. */
#ifndef ELASTIC_LEDGER_H
#define ELASTIC_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include "driver_types.h"

struct device;
enum holding_kind { HOLD_PTR, HOLD_ARRAY, HOLD_TILED, HOLD_LEVEL, HOLD_VMM, HOLD_MAP, HOLD_PROGRAM, HOLD_MAPPING, HOLD_POOLED, HOLD_POOL, HOLD_GRAPH, HOLD_EXEC, HOLD_GRAPHED, HOLD_GRAPH_SET, HOLD_EXEC_SET, HOLD_NODE, HOLD_BODY, HOLD_IPC, HOLD_EXTERNAL, HOLD_MANAGED, HOLD_SHARED, HOLD_OWN };
struct holding {
	uint64_t key;
	enum holding_kind kind;
	struct device *device;
	uint64_t bytes;
	uint64_t link;                /* of a map: its handle; of an import: its size, or one more than its row while another process pays; of a graph: its memory */
	CUcontext ctx;                /* it goes when this context goes */
	int refs, maps;
	bool given;                   /* as a descriptor, which holds on to the memory for as long as it is open, anywhere */
	void *own;                    /* of movable memory: its piece of a block, the block, or the array */
	struct holding *next;
};
void ledger_lock(void);
void ledger_unlock(void);
struct holding *ledger_add(uint64_t key, enum holding_kind kind, struct device *d, uint64_t bytes);
struct holding *ledger_find(uint64_t key, enum holding_kind kind);
void ledger_drop(struct holding *h);
typedef void (*holding_visit)(struct holding *h, void *arg);
void ledger_each(holding_visit visit, void *arg);
void ledger_fork(int step);

#endif
