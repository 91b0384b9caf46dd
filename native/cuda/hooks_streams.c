/* Hooks of streams and their capture into graphs. */
#include "compute_limit.h"
#include "graph_memory.h"
#include "handlers.h"
#include "memory_calls.h"
#include "movable_memory.h"
#include "pool_memory.h"
#include "pools.h"
#include "streams.h"

CUresult on_cuStreamDestroy(fn_cuStreamDestroy real, CUstream stream)
{
	stream_forget(stream);
	pooled_forget_stream(stream);
	return real(stream);
}

/* A program that waits for one of its launches while a later one is in flight works ahead: that is no end of a step. */
CUresult on_cuStreamSynchronize(fn_cuStreamSynchronize real, CUstream stream)
{
	CUresult r = real(stream);

	if (stream_is_last(stream) || stream_last_done())
		program_waited();
	return r;
}

CUresult on_cuEventSynchronize(fn_cuEventSynchronize real, CUevent event)
{
	CUresult r = real(event);

	if (stream_last_done())
		program_waited();
	return r;
}

/* A capture is counted from before it begins; none begins while the process is swapped out. */
#define BEGIN_CAPTURE(stream, call) do { \
	int pass_ = memory_call_enter(); \
	CUresult r_; \
	capture_opens(); \
	stream_before_capture(stream); \
	r_ = (call); \
	capture_begun(stream, r_ == CUDA_SUCCESS); \
	memory_call_leave(pass_); \
	return r_; \
} while (0)

CUresult on_cuStreamBeginCapture_v1(fn_cuStreamBeginCapture real, CUstream stream)
{
	BEGIN_CAPTURE(stream, real(stream));
}

CUresult on_cuStreamBeginCapture(fn_cuStreamBeginCapture_v2 real, CUstream stream, int mode)
{
	BEGIN_CAPTURE(stream, real(stream, mode));
}

CUresult on_cuStreamBeginCaptureToGraph(fn_cuStreamBeginCaptureToGraph real, CUstream stream, CUgraph graph, const CUgraphNode *deps, const void *edges, size_t count, int mode)
{
	BEGIN_CAPTURE(stream, real(stream, graph, deps, edges, count, mode));
}

/* Nothing holds this call back: who moves memory waits for it. */
static void ended(CUstream stream)
{
	capture_over(stream);
	if (memory_call_try()) {
		movable_free_late();
		memory_call_leave(PASS_MEMORY);
	}
}

/* Ends the capture also when it answers that the capture was spoilt; errors about the call itself leave it on. */
CUresult on_cuStreamEndCapture(fn_cuStreamEndCapture real, CUstream stream, CUgraph *graph)
{
	CUstream its = real == real_cuStreamEndCapture_ptsz ? own_stream(stream) : stream;
	bool was = stream_capturing(its);
	CUgraph of = was ? graph_of_capture(its) : NULL;
	CUresult r = real(stream, graph);

	if (of && r == CUDA_SUCCESS)
		graph_capture_ended(of);
	else if (of && !stream_capturing(its))
		graph_gone(of);
	if (was && !stream_capturing(its))
		ended(its);
	if (graph)
		graph_captured(its, r == CUDA_SUCCESS ? *graph : NULL);
	return r;
}

/* The program says itself what the next node comes after. */
CUresult on_cuStreamUpdateCaptureDependencies(fn_cuStreamUpdateCaptureDependencies real, CUstream stream, CUgraphNode *deps, size_t count, unsigned flags)
{
	graph_stream_reordered(real == real_cuStreamUpdateCaptureDependencies_ptsz ? own_stream(stream) : stream);
	return real(stream, deps, count, flags);
}

CUresult on_cuStreamUpdateCaptureDependencies_v2(fn_cuStreamUpdateCaptureDependencies_v2 real, CUstream stream, CUgraphNode *deps, const void *edges, size_t count, unsigned flags)
{
	graph_stream_reordered(real == real_cuStreamUpdateCaptureDependencies_v2_ptsz ? own_stream(stream) : stream);
	return real(stream, deps, edges, count, flags);
}
