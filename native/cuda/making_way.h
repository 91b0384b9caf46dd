/*
 * Who runs on lent time makes way for the lender when that is expected back: it makes no launch that would be in the lender's
 * way for long. What it gives up by that is bounded: a part of its time, whatever others do and say.
 */
#ifndef ELASTIC_MAKING_WAY_H
#define ELASTIC_MAKING_WAY_H

#include <stdbool.h>
#include <stdint.h>
#include "constants.h"

#define WAY_PART 20                /* one part in so many of its time, */
#define WAY_SAVED_NS (3 * MS)      /* which is saved up to this */

struct making_way { int64_t left, since; };

/* Whether to wait until then, rather than to make a launch that takes so long. */
static inline bool way_is_made(struct making_way *m, int64_t launch, int64_t until, int64_t now)
{
	m->left += (now - m->since) / WAY_PART;
	if (m->left > WAY_SAVED_NS)
		m->left = WAY_SAVED_NS;
	m->since = now;
	return now < until && until - now <= m->left && launch > until - now;
}

static inline void way_was_made(struct making_way *m, int64_t ns) { m->left -= ns; }

#endif
