/* The turns on one card: containers, their processes, and who comes next. The arbiter's own; time is an argument. */
#ifndef ELASTIC_CARD_TURNS_H
#define ELASTIC_CARD_TURNS_H

#include <stdbool.h>
#include <stdint.h>
#include "constants.h"
#include "limits_file.h"
#include "rhythm.h"
#include "turn_files.h"

#define MAX_TENANTS 64

struct row {                    /* one process */
	bool wants;             /* it waits for the turn */
	bool ending;            /* it launches no more, and what it has in flight is about to end */
	bool overstays;         /* its turn was taken away, and it has not given it back */
	int64_t closing_since;  /* it was asked to give its turn back then, and has not yet; 0: it was not */
	int64_t granted;        /* when it got its last turn */
	unsigned granted_beat;  /* and its beat then */
	int64_t begun;          /* since when it has the card alone, also over turns of its own in a row */
	int64_t given_back;     /* when it gave its last turn back */
	bool short_steps;       /* it says that it waits for what it launches, a few milliseconds each time */
	bool waited_for;        /* another container waited meanwhile */
	unsigned turn;          /* as in its decision: odd while it has the turn */
	unsigned beat;
	int64_t alive;          /* when its beat last changed; 0: never */
	int64_t since;          /* when it began to want */
	uint64_t resident, missing;
	bool runnable;
	int64_t starved_since;  /* it waits for memory since then; 0 if not */
	unsigned eviction;      /* number of the last request to move out */
	uint64_t evict;         /* bytes it was asked for and has not answered; 0 if none */
	uint64_t evict_from;    /* what it had when it was asked */
	int64_t evict_since;
	int64_t immovable_until; /* it was asked and did not move */
};
struct tenant {                 /* one container */
	bool used;
	unsigned share;         /* hundredths of a percent */
	bool lend;
	enum latency latency;
	int short_rows;         /* how many of its processes say that their steps are short */
	unsigned rests;         /* how many of its last turns it gave back itself after a short use, up to RESTS_MOST */
	int64_t overrun;        /* how long it takes to give a turn back that was asked for, about */
	bool interrupted;       /* its last turn was asked back for a quick one */
	bool behind;            /* it was below its share when it began to wait */
	struct rhythm rhythm;
	uint64_t memory;        /* its limit */
	int64_t quantum;        /* how long it stays on an oversubscribed card */
	int64_t credit;         /* ns of card time it may still use; negative is debt */
	int64_t refilled;       /* when credit was last topped up */
	int64_t borrows_since;  /* since when it has had no credit; 0: it has some */
	int64_t had;            /* card time so far, in the measure of its share */
	int rows;               /* those behind are not in use */
	struct row row[MAX_ROWS];
};
struct current {                /* who has the turn */
	int tenant, row;        /* -1: nobody */
};
/* What can be tried out on a card without building anew; elastic-gpu-arbiter's environment may say it. */
struct tuning {                 /* all of it for quick containers: those that need low latency, or are seen to work in short steps */
	int64_t slice;          /* a turn of others is offered to them after this */
	int64_t start;          /* a turn of theirs begins with this much credit */
	int64_t look;           /* between two looks of the arbiter while somebody wants the turn */
	int64_t backlog;        /* work that a stream of another may have in flight */
	int64_t card_slice;     /* so long the card runs one of several processes that have work in flight, the first that had some first */
	bool beside;            /* their turn may begin while work of the one before is in flight */
	bool expect;            /* who runs on lent time makes way when one of them is expected back */
};
struct card {
	struct tenant tenant[MAX_TENANTS];
	int tenants;            /* those behind are not in use */
	struct tuning tuning;
	struct current current;
	bool waited;            /* somebody waits who may have the turn, and */
	bool waited_quick;      /* is quick */
	int64_t rested;         /* when a quick one last gave its turn back to rest */
	int last;               /* the container that got the last turn; -1: none */
	int64_t granted;        /* and when */
	int64_t charged;        /* time up to which use is charged */
	int64_t shared_since;   /* since when those that have work in flight are the same */
	int in_flight;          /* how many that are */
	int64_t had;            /* the most any container has had */
	int64_t busy;           /* card time used by all */
	unsigned price;         /* of card time, in ten-thousandths: see power_price.c */
	int evictor_tenant, evictor_row; /* the process that others move out for; -1: none */
	int64_t evictor_since;
	bool evictor_satisfied; /* it has what it waited for, and runs for its quantum */
};
#define SLICE_NS (26 * MS / 10)
#define START_NS (5 * MS / 2)
#define LEVEL_NS (20 * MS)      /* so much card time a container that comes back may be behind the others */
#define BEHIND_NS (20 * MS)     /* who is so far behind is below its share, in the measure of that */
#define AFTER_QUICK_NS (2 * MS) /* so long after a quick one has come to rest a turn begins with less credit: */
#define AFTER_QUICK_CREDIT MS   /* if what it has in flight ends within */
#define AFTER_QUICK_OVERRUN_NS (4 * MS)
#define AT_ONCE_NS MS           /* so long one that is not quick has the card before a quick one that is below its share comes between */
#define SWITCH_NS (15 * MS / 100) /* what it costs a container to be interrupted: the card changes, and its threads wake up */
#define CARD_SLICE_NS (2 * MS)  /* the driver's time slice, unless somebody has set another */
#define LENT_NS (4 * MS)        /* who has run without credit for so long runs on lent time, and not on the last of its own */
#define REST_NS (10 * MS)       /* a turn that was given back after no more use than this is a short one */
#define RESTS (4)               /* of them in a row make a container quick */
#define RESTS_MOST (8)
#define LATELY_NS (5000 * MS)   /* a container that has had no turn for so long is not counted on */
#define LEASE_NS (200 * MS)     /* a process that has the turn and does not count on for so long has lost it */
#define ACCEPT_NS (20 * MS)     /* a process that gets the turn takes it within this, or loses it */
#define ASKING_NS (100 * MS)    /* a waiter that has not counted on for so long is not offered it */
#define GRACE_NS (2000 * MS)    /* work in flight may take so long to end; then the next one begins beside it */
#define BESIDE_NS (100 * MS)    /* so long two with work in flight share the bill; then each pays in full */
#define PRESENT_NS (3000 * MS)  /* a process that has not counted on for so long is not there */

void card_start(struct card *c, int64_t now);
/* A container comes; -1 if there are too many. It leaves with all its processes. */
int card_tenant_join(struct card *c, unsigned share, bool lend, int64_t now);
void card_tenant_limits(struct card *c, int tenant, unsigned share, bool lend, uint64_t memory, int64_t quantum);
void card_tenant_latency(struct card *c, int tenant, enum latency latency);
void card_tenant_leave(struct card *c, int tenant);
/* What a process has written: any number may be in any field. */
struct said { unsigned wants, released, beat, unused_us; };
void card_row_said(struct card *c, int tenant, int row, const struct said *said, int64_t now);
void card_row_short(struct card *c, int tenant, int row, bool short_steps, int64_t now);
/* Charges for the time since the last call and says who has the turn from now on. */
void card_decide(struct card *c, int64_t now);
bool card_row_present(const struct row *r, int64_t now);
/* Whether another container is on this card. */
bool card_contended(const struct card *c, int tenant, int64_t now);
/* Since when somebody waits for a turn that was asked back; 0 if nobody does. */
int64_t card_handover(const struct card *c);
/* Whether another container than this one (-1: any) is quick, and is there: by its class, or lately. */
bool card_quick(const struct card *c, int tenant, int64_t now);
/* Whether this container, if it has the turn, gives it back as soon as it rests: one of the two that change is quick. */
bool card_hurried(const struct card *c, int tenant);
/* While this container has the turn on lent time: when a quick one that will come at once is expected back. */
bool card_expects(const struct card *c, int tenant, int64_t now, struct window *w);
/* Whether anybody waits for the turn or has it. */
bool card_active(const struct card *c, int64_t now);

/* card_evictions.c: who moves out for whom. */
struct said_memory { uint64_t resident, missing; unsigned runnable, moved; };
void card_row_memory(struct card *c, int tenant, int row, const struct said_memory *said, int64_t now);
void card_decide_evictions(struct card *c, int64_t now);
/* Whether free memory on the card is this process's to take. */
bool card_may_enter(const struct card *c, int tenant, int row, int64_t now);
unsigned card_movable(const struct card *c, int64_t now);

#endif
