/* What a card draws, for the price of its time. */
#ifndef ELASTIC_CARD_POWER_H
#define ELASTIC_CARD_POWER_H

#include <stdint.h>

struct power { int64_t at, busy; double joules; }; /* at the last look */
/* The price after a look at the card; the old one where nothing is known. busy is card time used so far. */
unsigned power_look(struct power *last, const char *uuid, int64_t busy, unsigned old, int64_t now);

#endif
