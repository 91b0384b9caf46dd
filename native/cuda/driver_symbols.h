/* The real functions of the driver and of NVML: real_<symbol>, NULL where the installed driver has none. */
#ifndef ELASTIC_DRIVER_SYMBOLS_H
#define ELASTIC_DRIVER_SYMBOLS_H

#include <stdatomic.h>
#include <stddef.h>
#include "driver_types.h"

struct driver_symbol {
	const char *symbol, *base;
	int since, per_thread;
	_Atomic(void *) real;
};
extern struct driver_symbol driver_symbols[];
void *driver_resolve(int id);
static inline void *driver_real(int id)
{
	void *p = atomic_load_explicit(&driver_symbols[id].real, memory_order_relaxed);
	return p ? p : driver_resolve(id);
}

#include "driver_calls.h"

#endif
