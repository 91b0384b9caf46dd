/* Streams of our own, on which memory is copied and put behind arrays. */
#ifndef ELASTIC_COPY_STREAMS_H
#define ELASTIC_COPY_STREAMS_H

#include "driver_types.h"

/* Both make the context current. The first is for copies, of which many may be in flight; the second for what is waited for at once. */
CUstream copy_stream(CUcontext ctx);
CUstream map_stream(CUcontext ctx);
/* Waits for all work of a context, whichever is the current one; or of that one. No capture begins meanwhile. */
void context_wait(CUcontext ctx);
void context_wait_current(void);
/* They went with their context. */
void copy_streams_forget(CUcontext ctx);
void copy_streams_fork_child(void);

#endif
