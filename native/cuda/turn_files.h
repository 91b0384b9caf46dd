/*
 * The two files by which a container and the node's arbiter speak about one card. The request file belongs to the
 * container: its processes write it, a row each, and the arbiter reads it and believes nothing in it. The decision file
 * belongs to the arbiter: containers have it read-only, each its own. The agent makes both, in their full size.
 */
#ifndef ELASTIC_TURN_FILES_H
#define ELASTIC_TURN_FILES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "constants.h"

#define MAX_ROWS 256                  /* processes of one container that may use a card */

enum {
	SAYS_NOTHING,
	SAYS_WANTS,                   /* it waits for the turn */
	SAYS_ENDING,                  /* it was asked to give its turn back: it launches no more, and what is in flight ends soon */
};
struct request {                      /* of one process; the arbiter reads these at every look */
	_Atomic unsigned wants;       /* SAYS_* */
	_Atomic unsigned released;    /* number of the turn it gave back last */
	_Atomic unsigned beat;        /* counts on while the process lives */
	_Atomic unsigned unused_us;   /* of the turn it gave back last: time in which it had nothing to run */
};
struct memory_request {
	_Atomic uint64_t resident;    /* bytes on the card that can be moved to the host */
	_Atomic uint64_t missing;     /* bytes it waits for; 0 if it has what it needs */
	_Atomic unsigned runnable;    /* 1 when all its memory is on the card */
	_Atomic unsigned moved;       /* number of the last eviction it has answered */
};
struct request_file {
	_Atomic uint64_t version;
	_Atomic int64_t credit;       /* ns the container may still use while there is no arbiter */
	_Atomic int64_t refilled;     /* when that was last topped up */
	_Atomic uint64_t short_steps[MAX_ROWS / 64]; /* a bit for each process: it works in short steps, and waits for each */
	uint64_t unused;
	struct request row[MAX_ROWS];
	struct memory_request memory[MAX_ROWS];
};

struct decision {                     /* for one process */
	_Atomic unsigned turn;        /* odd: it has the turn of this number; even: it has none; futex */
	_Atomic unsigned eviction;    /* number of the last request to move memory out */
	_Atomic uint64_t evict;       /* bytes that one asks for */
	_Atomic unsigned enter;       /* 1: free memory on the card is its to take */
	unsigned unused;
};
enum { REFUSED_NOT, REFUSED_CONTAINERS };
struct decision_file {
	_Atomic uint64_t version;     /* 0 until an arbiter has come */
	_Atomic int64_t beat;         /* when the arbiter last looked */
	_Atomic unsigned contended;   /* 1: another container is on this card */
	_Atomic unsigned refused;     /* REFUSED_*: why this container gets no turns */
	_Atomic unsigned movable;     /* processes on this card with memory that can be moved */
	_Atomic unsigned waited;      /* 1: another waits, and one of the two is quick: who has the turn gives it back as soon as it rests */
	_Atomic unsigned backlog_us;  /* work that a stream may have in flight; 0: as the library has it */
	_Atomic unsigned hold_us;     /* before hold_until: who is expected back by then waits for no launch that is begun in that time */
	_Atomic int64_t hold_until;   /* 0: nobody is */
	unsigned unused[4];
	struct decision row[MAX_ROWS];
};
_Static_assert(sizeof(struct request_file) == 10304 && sizeof(struct decision_file) == 6208, "the agent makes files of these sizes; another layout is another version");

#define TURNS_VERSION ((uint64_t)0x454c415300000000 | 2)
#define AWAY_NS (1000 * MS)           /* an arbiter that has not looked for so long is not there */
#define LINGER_NS MS                  /* a pause shorter than this does not end a turn */
#define WAITED_LINGER_NS (MS / 10)    /* the same while others wait */
#define HOLD_MOST_NS (3 * MS / 2)     /* no launch is held back longer for one that is expected */
#define ENDING_NS MS                  /* what takes no longer ends soon */
#define TURN_NS (20 * MS)             /* a turn begins with this much credit and is offered round after twice as much */

/* The most credit a container has of its own share (in hundredths of a percent) without having waited for a turn. */
static inline int64_t credit_cap(unsigned share)
{
	int64_t cap = 100 * MS / 10000 * share;
	return cap > 2 * TURN_NS ? cap : 2 * TURN_NS;
}

#endif
