/* When a container that rests between its steps comes back, as far as its pauses so far tell. Time is an argument. */
#ifndef ELASTIC_RHYTHM_H
#define ELASTIC_RHYTHM_H

#include <stdbool.h>
#include <stdint.h>
#include "constants.h"

#define PAUSE_MOST (1000 * MS)  /* who has rested for longer comes when it comes */

#define SEEN_NS (MS / 4)        /* that it is back is seen, and others have stopped, after so long */

struct rhythm {
	int64_t rested;         /* since when it rests; 0: it does not */
	int64_t pause;          /* how long it does, on average; 0: nothing is known */
	int64_t strays;         /* and by how much a pause differs from that */
};
struct window { int64_t from, until; };
void rhythm_rests(struct rhythm *r, int64_t now);
void rhythm_returns(struct rhythm *r, int64_t now);
/* In which time it is expected back; false if that is not known closely enough, or is over. */
bool rhythm_expects(const struct rhythm *r, int64_t now, struct window *w);

#endif
