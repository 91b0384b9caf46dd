/* Puts the parts together when the first CUDA call comes. */
#ifndef ELASTIC_START_H
#define ELASTIC_START_H

#include "session.h"

bool library_register_and_start(void);
/* True once this process is under the limits, with every part registered; false means it gets no GPU. */
static inline bool library_start(void)
{
	return atomic_load_explicit(&session.started, memory_order_acquire) || library_register_and_start();
}
/* The current device once the library is started; NULL if there is none. */
static inline struct device *device_ready(void) { return library_start() ? device_current() : NULL; }

#endif
