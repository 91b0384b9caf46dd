/* Out and in, as the agent asks for them. */
#ifndef MOVES_H
#define MOVES_H
#include "check.h"

static void out(void)
{
	struct swap_result r;

	swap_out(UINT64_MAX, &r);
	if (!r.done)
		fprintf(stderr, "out: %s\n", r.why);
	CHECK(r.done);
}

static void in(void)
{
	struct swap_result r;
	uint64_t missing;

	swap_in(&r, &missing);
	if (!r.done)
		fprintf(stderr, "in: %s\n", r.why);
	CHECK(r.done && !swap_is_out());
}

static void out_and_in(void)
{
	out();
	in();
}

#endif
