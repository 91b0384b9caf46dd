/* How a call waits for memory of another process. */
#ifndef ELASTIC_SHARING_H
#define ELASTIC_SHARING_H

#include "memory_calls.h"
#include "shared_imports.h"
#include "system.h"

#define SILENT_NS (30000 * MS)
/*
 * While the memory moves it is asked for again, however long that takes, as other calls wait that touch memory. Between two
 * askings this process may be moved itself. A process that does not answer at all is given up.
 */
#define UNTIL_NOW(ask) do { \
	int64_t end_ = now_ns() + SILENT_NS; \
	for (;;) { \
		int pass_ = memory_call_enter(); \
		ask; \
		memory_call_leave(pass_); \
		if (when == SHARED_NOW) \
			break; \
		if (when == SHARED_SILENT && now_ns() > end_) { \
			r = CUDA_ERROR_INVALID_HANDLE; \
			break; \
		} \
		atomic_fetch_add(&memory_calls.waiting, 1); \
		sleep_ns(5 * MS); \
		atomic_fetch_sub(&memory_calls.waiting, 1); \
	} \
} while (0)

#endif
