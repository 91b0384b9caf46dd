/*
 * The driver takes its daemon and its share from the environment when it starts. A program can change its environment, so
 * the library writes there what was granted just before.
 */
#include <stdio.h>
#include <stdlib.h>
#include "driver_symbols.h"
#include "mps.h"
#include "paths.h"

void mps_before_init(const struct limits *l)
{
	char percent[16];
	unsigned share;

	if (!l->devices || l->device[0].sharing != SHARING_SPACE)
		return;
	share = l->device[0].compute;
	snprintf(percent, sizeof percent, "%u.%02u", share / 100, share % 100);
	setenv("CUDA_MPS_PIPE_DIRECTORY", path_mps(), 1);
	setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent, 1);
	unsetenv("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"); /* with it a context may have more than its process */
}

bool mps_client(CUdevice dev)
{
	int on = 0;

	return real_cuDeviceGetAttribute && real_cuDeviceGetAttribute(&on, CU_DEVICE_ATTRIBUTE_MPS, dev) == CUDA_SUCCESS && on;
}
