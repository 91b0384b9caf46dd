/* Card time at clocks that the power limit would not allow for long costs more. */
#ifndef ELASTIC_POWER_PRICE_H
#define ELASTIC_POWER_PRICE_H

/* From the part of the time the card was busy, its average power and its power limit; in ten-thousandths. */
unsigned power_price(double busy, double watts, double limit);

#endif
