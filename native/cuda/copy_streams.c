/* Two streams per context, made when first needed; there are as many contexts as cards in all but odd programs. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include "constants.h"
#include "copy_streams.h"
#include "driver_symbols.h"
#include "streams.h"

#define CONTEXTS (2 * MAX_DEVICES)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct made { CUcontext ctx; CUstream copy, map; } made[CONTEXTS];

static struct made *find(CUcontext ctx)
{
	struct made *m = NULL;

	for (int i = 0; i < CONTEXTS; i++) {
		if (made[i].ctx == ctx)
			return &made[i];
		if (!made[i].ctx && !m)
			m = &made[i];
	}
	if (!m || real_cuStreamCreate(&m->copy, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		return NULL;
	if (real_cuStreamCreate(&m->map, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		m->map = NULL;
	m->ctx = ctx;
	return m;
}

static CUstream stream_for(CUcontext ctx, bool copies)
{
	CUstream stream;
	struct made *m;

	real_cuCtxSetCurrent(ctx);
	pthread_mutex_lock(&lock);
	m = find(ctx);
	stream = !m ? NULL : copies ? m->copy : m->map;
	pthread_mutex_unlock(&lock);
	return stream;
}

CUstream copy_stream(CUcontext ctx) { return stream_for(ctx, true); }
CUstream map_stream(CUcontext ctx) { return stream_for(ctx, false); }

void context_wait_current(void)
{
	bool alone = captures_hold_off();

	real_cuCtxSynchronize();
	if (alone)
		captures_let_begin();
}

void context_wait(CUcontext ctx)
{
	CUcontext before = NULL;

	real_cuCtxGetCurrent(&before);
	real_cuCtxSetCurrent(ctx);
	context_wait_current();
	real_cuCtxSetCurrent(before);
}

void copy_streams_forget(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < CONTEXTS; i++)
		if (made[i].ctx == ctx)
			memset(&made[i], 0, sizeof made[i]);
	pthread_mutex_unlock(&lock);
}

void copy_streams_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(made, 0, sizeof made);
}
