/* Pauses are averaged as round trips are in a network: the mean, and how far a pause is from it, each by an eighth of what is new. */
#include "rhythm.h"
#include "turn_files.h"

void rhythm_rests(struct rhythm *r, int64_t now) { r->rested = now; }

void rhythm_returns(struct rhythm *r, int64_t now)
{
	int64_t pause = now - r->rested, off;

	if (!r->rested)
		return;
	r->rested = 0;
	if (pause <= 0 || pause > PAUSE_MOST)
		return;
	if (!r->pause) {
		r->pause = pause;
		r->strays = pause / 2;
		return;
	}
	/* One long rest among short ones shall not be remembered for long. */
	if (pause > 2 * r->pause)
		pause = 2 * r->pause;
	off = pause > r->pause ? pause - r->pause : r->pause - pause;
	r->pause += (pause - r->pause) / 8;
	r->strays += (off - r->strays) / 8;
}

bool rhythm_expects(const struct rhythm *r, int64_t now, struct window *w)
{
	if (!r->rested || !r->pause || 3 * r->strays > HOLD_MOST_NS)
		return false;
	w->until = r->rested + r->pause + 2 * r->strays + SEEN_NS;
	w->from = w->until - HOLD_MOST_NS;
	return now < w->until;
}
