/* What the agent grants this container. */
#ifndef ELASTIC_LIMITS_FILE_H
#define ELASTIC_LIMITS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include "constants.h"

enum latency { LATENCY_AUTO, LATENCY_LOW, LATENCY_THROUGHPUT };
enum sharing { SHARING_TIME, SHARING_SPACE };
struct device_limit {
	char uuid[48];      /* "GPU-…", "MIG-…", or "*" */
	uint64_t memory;    /* bytes */
	unsigned compute;   /* hundredths of a percent of the card's time, or of its processors */
	bool lend;          /* may use what neighbours leave */
	enum latency latency; /* how soon it needs its turns; auto: as it is seen to work */
	enum sharing sharing; /* by turns, or at once with others under MPS */
};
struct limits {
	char container[64];
	bool swap, oversubscribe, control_any;
	unsigned quantum_ms;
	int devices;
	struct device_limit device[MAX_DEVICES + 1];
};
/* Parses text; on failure returns false and says why. */
bool limits_parse(const char *text, struct limits *out, char *why, size_t why_size);
bool limits_read(const char *path, struct limits *out, char *why, size_t why_size);
const struct device_limit *limits_for(const struct limits *l, const char *uuid);

#endif
