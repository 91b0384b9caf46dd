/* For tests that have the client linked in. */
#ifndef LINKED_H
#define LINKED_H
#include "check_remote.h"
#include "../client_parts.h"

static void begin(void)
{
	CUcontext ctx;

	EQUAL(cuInit(0), CUDA_SUCCESS);
	EQUAL(cuDevicePrimaryCtxRetain(&ctx, 0), CUDA_SUCCESS);
	EQUAL(cuCtxSetCurrent(ctx), CUDA_SUCCESS);
}

#endif
