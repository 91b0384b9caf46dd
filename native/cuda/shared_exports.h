/* Memory of this process that others of its container have mapped: it moves with all of them, or not at all. */
#ifndef ELASTIC_SHARED_EXPORTS_H
#define ELASTIC_SHARED_EXPORTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "peer_socket.h"
#include "shared_imports.h"

/* The name of a block, and of an allocation in it, for other processes; false if it cannot be given to any. */
bool shared_export(struct block *b, uint64_t offset, uint64_t size, struct shared_name *n);
/* The block of this process that is meant; NULL if it is not one. With the lock of blocks.h. */
struct block *shared_own(const struct shared_name *n);
/* A descriptor of a chunk for a process that has the block from now on; -1: the answer says why. */
int shared_give(pid_t to, const struct peer_request *q, struct peer_answer *a);
void shared_drop(pid_t from, const struct peer_request *q, struct peer_answer *a);
/*
 * Before anything that is shared moves: nothing is given any more, and all that have it hold their calls back and let go
 * of it. False if one does not: *why says which, and all may have it again.
 */
bool shared_exports_leave(int64_t deadline, char *why, size_t size);
/*
 * All of it is there: they may ask for it again. They have a second before calls here go on, for this process may end
 * as soon as it can.
 */
void shared_exports_return(void);
/* Forgets importers that have ended, and frees what only they had. */
void shared_exports_refresh(void);
void shared_exports_fork_child(void);

#endif
