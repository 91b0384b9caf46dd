/*
 * The price of card time. A card at its power limit lowers its clock; one that is used a third of the time does not
 * have to, and does more in the same time. Such a container would get more than its share of what the card can do when
 * used all the time, and so pays more for the time: as much more as the clock would have to be lower.
 */
#include "power_price.h"

#define PAUSE_POWER 0.18 /* between turns the card draws about this part of its limit */

/* x to the power 0.45, which is how speed followed power on the card this was measured on (docs/gpu-library.md). */
static double speed_for_power(double x)
{
	static const double at[] = {1.0, 1.0438, 1.0855, 1.1253, 1.1635, 1.2002, 1.2355};
	int i = (int)((x - 1) * 10);

	if (x <= 1)
		return 1;
	if (i >= 6)
		return at[6];
	return at[i] + (at[i + 1] - at[i]) * ((x - 1) * 10 - i);
}

/* From the part of the time the card was busy, its average power and its power limit; in ten-thousandths. */
unsigned power_price(double busy, double watts, double limit)
{
	double pause = PAUSE_POWER * limit;

	if (busy < 0.01 || limit <= 0)
		return 10000;
	if (busy > 1)
		busy = 1;
	return (unsigned)(10000 * speed_for_power((watts - pause * (1 - busy)) / busy / limit));
}
