/* Hooks of streams and their capture into graphs. */
#include "handlers.h"
#include "pools.h"
#include "streams.h"

CUresult on_cuStreamDestroy(fn_cuStreamDestroy real, CUstream stream)
{
	stream_forget(stream);
	return real(stream);
}

CUresult on_cuStreamBeginCapture_v1(fn_cuStreamBeginCapture real, CUstream stream)
{
	CUresult r;

	stream_before_capture(stream);
	capture_count(1);
	r = real(stream);
	if (r != CUDA_SUCCESS)
		capture_count(-1);
	return r;
}

CUresult on_cuStreamBeginCapture(fn_cuStreamBeginCapture_v2 real, CUstream stream, int mode)
{
	CUresult r;

	stream_before_capture(stream);
	capture_count(1);
	r = real(stream, mode);
	if (r != CUDA_SUCCESS)
		capture_count(-1);
	return r;
}

CUresult on_cuStreamBeginCaptureToGraph(fn_cuStreamBeginCaptureToGraph real, CUstream stream, CUgraph graph, const CUgraphNode *deps, const void *edges, size_t count, int mode)
{
	CUresult r;

	stream_before_capture(stream);
	capture_count(1);
	r = real(stream, graph, deps, edges, count, mode);
	if (r != CUDA_SUCCESS)
		capture_count(-1);
	return r;
}

/* Ends the capture also when it answers that the capture was spoilt; errors about the call itself leave it on. */
CUresult on_cuStreamEndCapture(fn_cuStreamEndCapture real, CUstream stream, CUgraph *graph)
{
	bool was = stream_capturing(stream);
	CUresult r = real(stream, graph);

	if (was && !stream_capturing(stream))
		capture_count(-1);
	if (graph)
		graph_captured(stream, r == CUDA_SUCCESS ? *graph : NULL);
	return r;
}
