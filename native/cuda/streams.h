/* What is in flight on the streams of this process. */
#ifndef ELASTIC_STREAMS_H
#define ELASTIC_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "driver_types.h"

struct gate;
/* Waits while the stream has a few milliseconds of work in flight. */
void stream_launched(struct gate *g, CUstream stream);
/* Before a launch: waits while the stream has more in flight than that many nanoseconds of work, as far as is known, and the gate is in that state. */
void stream_shorten(CUstream stream, int64_t most, _Atomic unsigned *gate, unsigned state);
/* Before a launch: makes way for who is expected back by then, if a launch that takes as long as those before it would be in its way. */
void stream_hold(CUstream stream, int64_t until, _Atomic unsigned *gate, unsigned state);
/* The same as the first without waiting: only what is in flight is to be known. */
void stream_counted(struct gate *g, CUstream stream);
/* Whether this is the stream on which this thread launched last, and whether all it launched there is known to be done. */
bool stream_is_last(CUstream stream);
bool stream_last_done(void);
void stream_before_capture(CUstream stream);
void stream_forget(CUstream stream);
void context_forget(CUcontext ctx);
/* A capture is open from before it begins; it ends as the second says, also where its stream or its context is destroyed. */
void capture_opens(void);
void capture_begun(CUstream stream, bool begun);
void capture_over(CUstream stream);
bool stream_capturing(CUstream stream);
/* Whether any stream of this process is being captured. */
bool captures_open(void);
/* Between the two no capture begins, for to wait for a context spoils one. False where one is open: there is nothing to let begin. */
bool captures_hold_off(void);
void captures_let_begin(void);
/* While a stream is captured a thread may make and free memory, and ask about events, only if it says that it knows what it does. */
struct relaxed { int mode; bool on; };
struct relaxed capture_relax(void);
void capture_unrelax(struct relaxed r);
/* For a thread of the library, which captures nothing: for good. */
void capture_relax_thread(void);
/* Whether all work seen on this gate's streams is done; marks what is not marked yet. */
bool streams_idle(struct gate *g);
/* Whether all work on this gate's streams ends within so many nanoseconds, as far as can be told. */
bool streams_ending(struct gate *g, int64_t within);
void streams_fork_child(void);
static inline CUstream own_stream(CUstream s) { return s ? s : (CUstream)CU_STREAM_PER_THREAD; }

#endif
