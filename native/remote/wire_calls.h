/* Payloads of the calls that calls.tab does not describe. */
#ifndef ELASTIC_REMOTE_WIRE_CALLS_H
#define ELASTIC_REMOTE_WIRE_CALLS_H

#include <stdbool.h>
#include <stdint.h>

/* Flags of a context that are carried: not those with which the driver writes core dumps, and opens pipes, where the server runs. */
static inline bool context_flags_carried(unsigned flags) { return !(flags & ~0x9fu); }

/* Options of the compiler, by the driver's numbers. */
enum { JIT_MAX_REGISTERS, JIT_INFO_LOG = 3, JIT_INFO_LOG_SIZE, JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE, JIT_OPTIMIZATION, JIT_FROM_CONTEXT, JIT_TARGET, JIT_FALLBACK, JIT_DEBUG_INFO, JIT_VERBOSE, JIT_LINE_INFO, JIT_CACHE_MODE };
/* Those whose value is a number. */
static inline bool jit_is_number(int option) { return option == JIT_MAX_REGISTERS || (option >= JIT_OPTIMIZATION && option <= JIT_CACHE_MODE); }

#define MOST_OPTIONS 16
struct wire_load {              /* followed by the code; load_again: by its struct code_name; link: by inputs */
	uint32_t options, words, library, unused; /* words: the compiler's are wanted; library: and no module */
	int32_t option[MOST_OPTIONS];
	uint64_t value[MOST_OPTIONS];
};
struct wire_words { char info[8192], error[8192]; }; /* the compiler's last */

enum { LINK_CUBIN, LINK_PTX, LINK_FATBIN, LINK_OBJECT, LINK_LIBRARY };
struct wire_input { uint64_t size; uint32_t type, name; }; /* of the linker, followed by name, with its zero, and code */

enum { OF_MODULE, OF_LIBRARY, OF_KERNEL };
struct wire_name { uint64_t id; uint32_t of, unused; }; /* followed by the name of a function or a variable */

struct wire_function {          /* the answer; followed by MOST_PARAMS parameters, of which count are meant */
	uint64_t id;
	uint32_t count, unused;
};
struct wire_param { uint32_t offset, size; };

#define MOST_ATTRIBUTES 16
struct wire_launch {            /* followed by the driver's attributes, and the parameters, as they lie in memory */
	uint64_t function, stream;
	uint32_t grid[3], block[3], shared, cooperative, attributes, kernel;
};

/* Attributes of launches that are values. What others name, an event or memory, is not carried. */
static inline bool attribute_is_value(int attribute)
{
	enum { COOPERATIVE = 2, CLUSTER = 4, CLUSTER_POLICY, SERIALIZATION, PRIORITY = 8, DOMAIN_MAP, DOMAIN, PREFERRED_CLUSTER, CARVEOUT = 14 };

	switch (attribute) {
	case COOPERATIVE: case CLUSTER: case CLUSTER_POLICY: case SERIALIZATION: case PRIORITY: case DOMAIN_MAP: case DOMAIN: case PREFERRED_CLUSTER: case CARVEOUT:
		return true;
	default:
		return false;
	}
}

struct wire_copy {              /* write: followed by the data. read: the answer is the data */
	uint64_t address, stream;
	uint32_t bytes, with_stream;
};

/* What can be asked of an address, and how many bytes the answer has; 0: not carried. */
enum { POINTER_CONTEXT = 1, POINTER_KIND, POINTER_ON_CARD, POINTER_BUFFER = 7, POINTER_MANAGED, POINTER_ORDINAL, POINTER_START = 11, POINTER_BYTES, POINTER_MAPPED };
static inline unsigned pointer_attribute_bytes(int attribute)
{
	switch (attribute) {
	case POINTER_CONTEXT: case POINTER_ON_CARD: case POINTER_BUFFER: case POINTER_START: case POINTER_BYTES:
		return 8;
	case POINTER_KIND: case POINTER_MANAGED: case POINTER_ORDINAL: case POINTER_MAPPED:
		return 4;
	default:
		return 0;
	}
}

struct wire_piece {             /* on a connection for copies */
	uint32_t call, lane;      /* write_large or read */
	struct wire_copy copy;
};

#endif
