/* Payloads of the calls that calls.tab does not describe. */
#ifndef ELASTIC_REMOTE_WIRE_CALLS_H
#define ELASTIC_REMOTE_WIRE_CALLS_H

#include <stdint.h>

#define MOST_OPTIONS 16
struct wire_load {              /* followed by the code; load_again: by its struct code_name */
	uint32_t options;
	int32_t option[MOST_OPTIONS];
	uint64_t value[MOST_OPTIONS];
};

struct wire_function {          /* the answer; followed by MOST_PARAMS parameters, of which count are meant */
	uint64_t id;
	uint32_t count, unused;
};
struct wire_param { uint32_t offset, size; };

struct wire_launch {            /* followed by the parameters, as they lie in memory */
	uint64_t function, stream;
	uint32_t grid[3], block[3], shared, cooperative;
};

struct wire_copy {              /* write: followed by the data. read: the answer is the data */
	uint64_t address, stream;
	uint32_t bytes, with_stream;
};

struct wire_piece {             /* on a connection for copies */
	uint32_t call, lane;      /* write_large or read */
	struct wire_copy copy;
};

#endif
