/* The file of one card, which all containers on it map: tenants, their slots, and the turn. Time is an argument. */
#ifndef ELASTIC_CARD_FILE_H
#define ELASTIC_CARD_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "constants.h"

#define MAX_TENANTS 64
#define MAX_SLOTS 256

struct tenant {                       /* one container on one card */
	_Atomic uint64_t id;          /* hash of the container's name; 0 free */
	_Atomic unsigned share;       /* hundredths of a percent */
	_Atomic unsigned lend;
	_Atomic int64_t credit;       /* ns of card time it may still use; negative is debt */
	_Atomic int64_t refilled;     /* when credit was last topped up */
	_Atomic int64_t had;          /* card time so far, in the measure of its share */
	_Atomic int64_t seen;
};
struct slot {                         /* one process on one card */
	_Atomic uint64_t owner;       /* the process; 0 free */
	_Atomic int64_t expires;      /* the slot is free for others after this */
	_Atomic int64_t asked;        /* when it last asked for the turn */
	_Atomic unsigned tenant;
	_Atomic unsigned wants;       /* 1 while it waits for the turn */
	_Atomic int64_t since;
	_Atomic unsigned wake;        /* futex */
	_Atomic uint64_t resident;    /* bytes on the card that can be swapped */
	_Atomic uint64_t evict;       /* bytes asked of it */
	_Atomic unsigned runnable;    /* 1 when all its memory is on the card */
	_Atomic int64_t starved_since; /* it waits for memory on the card since then; 0 if not */
};
struct card {
	_Atomic uint64_t version;
	_Atomic uint64_t turn;        /* slot + 1 in the low 16 bits, then a count; 0 in the low bits: free */
	_Atomic int64_t lease;        /* the turn is void after this */
	_Atomic int64_t had;          /* the most any container has had */
	_Atomic int64_t busy;         /* card time used by all */
	_Atomic unsigned price;       /* of card time, in ten-thousandths: see power_price.c; 0 is 1 */
	_Atomic unsigned evictor;     /* slot + 1 of the process that may ask others to move out */
	_Atomic int64_t evictor_since;
	struct tenant tenant[MAX_TENANTS];
	struct slot slot[MAX_SLOTS];
};
#define TURN_NS (20 * MS)             /* a turn begins with this much credit and is offered round after twice as much */
#define LEASE_NS (200 * MS)           /* a process that does not renew the turn for so long has lost it */
#define ACCEPT_NS (20 * MS)           /* a process that is handed the turn takes it within this, or it is free */
#define ASKING_NS (100 * MS)          /* a waiter that has not asked for so long is not offered it */
#define SLOT_NS (30000 * MS)
#define PRESENT_NS (10000 * MS)       /* a process that did not renew its slot for so long is not waited for */
#define TENANT_NS (3000 * MS)         /* a neighbour counts as there if it was seen within this */
_Static_assert(sizeof(struct card) == 23608 && offsetof(struct card, slot) == 3128, "the layout is shared with older libraries");
int card_tenant(struct card *c, const char *container, unsigned share, bool lend, int64_t now);
int card_slot_take(struct card *c, unsigned tenant, uint64_t owner, int64_t now);
void card_slot_renew(struct card *c, int slot, int64_t now);
void card_slot_leave(struct card *c, int slot);
void card_renew_turn(struct card *c, int64_t now);
int64_t card_credit(struct card *c, unsigned tenant, int64_t now);
void card_charge(struct card *c, unsigned tenant, int64_t ns);
/* Takes the turn if it is this slot's to take; else says in *wait how long to sleep before asking again. */
bool card_take_turn(struct card *c, int slot, int64_t now, int64_t *wait);
/* Whether the process that has the turn should drain and give it back. */
bool card_should_yield(struct card *c, int slot, int64_t now, int64_t held);
bool card_has_turn(struct card *c, int slot);
/* Ends the turn; returns the slot it was handed to, or -1. */
int card_pass_turn(struct card *c, int slot, int64_t now);
/* Whether another container is on this card. */
bool card_contended(struct card *c, unsigned tenant, int64_t now);

#endif
