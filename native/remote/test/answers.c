/* What is refused, with a driver that has all of calls.tab. */
#include "linked.h"
#include "network.h"

/* What a graph copies it copies when it is launched, from the program's memory as it is then. That is refused: the graph would
 * copy from where the server had these bytes once. */
static void copies_in_graphs(void)
{
	enum { NOT_IN_CAPTURE = 900 };
	static unsigned char mine[1 << 20];
	CUdeviceptr p;
	CUstream stream;
	CUgraph graph;

	serve_with(NULL, NULL);
	begin();
	EQUAL(cuMemAlloc_v2(&p, sizeof mine), CUDA_SUCCESS);
	EQUAL(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	EQUAL(cuStreamBeginCapture_v2(stream, 2), CUDA_SUCCESS);
	EQUAL(cuMemcpyHtoDAsync_v2(p, mine, 100, stream), CUDA_SUCCESS);
	EQUAL(cuCtxSynchronize(), NOT_IN_CAPTURE);
	EQUAL(cuMemcpyHtoDAsync_v2(p, mine, sizeof mine, stream), NOT_IN_CAPTURE);
	EQUAL(cuMemcpyDtoHAsync_v2(mine, p, sizeof mine, stream), NOT_IN_CAPTURE);
	EQUAL(cuMemcpyDtoH_v2(mine, p, sizeof mine), CUDA_SUCCESS); /* on another stream */
	EQUAL(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	EQUAL(cuMemcpyHtoDAsync_v2(p, mine, 100, stream), CUDA_SUCCESS);
	EQUAL(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

MAIN(T(copies_in_graphs))
