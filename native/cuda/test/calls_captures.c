/* What the library does beside a capture: the driver spoils one for calls that may wait for it, against the tests' driver. */
#include "../hold.h"
#include "calls.h"
#include "moves.h"

#define THIRTY "device * memory 536870912 compute 30"

static void launch(struct stub_kernel *k, CUstream s)
{
	EQUAL(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), 0);
}

static _Atomic bool over;

/* In a thread of its own: the program goes on elsewhere while the stream is captured. */
static void beside(void *(*work)(void *), void *arg)
{
	pthread_t t;

	EQUAL(pthread_create(&t, NULL, work, arg), 0);
	EQUAL(pthread_join(t, NULL), 0);
}

static void *launch_many(void *arg)
{
	struct stub_kernel k = {1000, NULL};

	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	for (int i = 0; i < 1000; i++)
		launch(&k, arg);
	EQUAL(cuStreamSynchronize(arg), 0);
	return NULL;
}

/* Launches are marked, and the marks are asked for, on the thread that launches. */
static void launches_of_another_thread_spoil_none(void)
{
	struct stub_kernel k = {1000, NULL};
	CUstream other;

	begin("", THIRTY);
	EQUAL(real_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	EQUAL(real_cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), 0);
	beside(launch_many, other);
	EQUAL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	launch(&k, stream);
	beside(launch_many, other);
	launch(&k, other); /* the capturing thread may, too */
	launch(&k, stream);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
}

/* What was launched on the legacy stream before is marked later, by a thread of the library. */
static void what_the_legacy_stream_did_spoils_none(void)
{
	struct stub_kernel k = {1000, NULL};
	struct gate *g;

	begin("", THIRTY);
	EQUAL(real_cuStreamCreate(&stream, 0), 0);
	for (int i = 0; i < 500; i++) /* the library learns that they are short, and marks them less often */
		launch(&k, NULL);
	g = atomic_load(&session.device[0].gate);
	for (int round = 0; round < 50; round++) {
		launch(&k, NULL);
		EQUAL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
		launch(&k, stream);
		UNTIL(atomic_load(&g->state) == GATE_CLOSED); /* it has looked whether anything is in flight */
		EQUAL(cuStreamEndCapture(stream, &graph), 0);
		EQUAL(cuGraphDestroy(graph), 0);
	}
}

static void *free_it(void *arg)
{
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuMemFree_v2(*(CUdeviceptr *)arg), 0);
	return NULL;
}

/* A thread that captures for itself keeps no other from giving memory back. It goes when the capture has ended. */
static void memory_is_freed_beside_one(void)
{
	CUdeviceptr p, q, pooled;
	int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

	begin_swap();
	EQUAL(real_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0);
	EQUAL(cuMemAlloc_v2(&q, 4 * MiB), 0);
	EQUAL(cuMemAllocAsync(&pooled, 4 * MiB, NULL), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
	beside(free_it, &p);
	EQUAL(real_cuThreadExchangeStreamCaptureMode(&relaxed), 0);
	EQUAL(cuMemFree_v2(q), 0);
	EQUAL(real_cuThreadExchangeStreamCaptureMode(&relaxed), 0);
	EQUAL(cuMemFreeAsync(pooled, NULL), 0);
	EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE); /* it is the program's no more */
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	out_and_in();
	EQUAL(used(), CONTEXT);
	EQUAL(stub_card_used(0), CONTEXT);
}

static void memory_of_a_context_that_ends_goes_with_it(void)
{
	CUcontext second;
	CUdeviceptr p;

	begin_swap();
	EQUAL(real_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	EQUAL(cuCtxCreate_v2(&second, 0, 0), 0);
	EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	EQUAL(cuMemFree_v2(p), 0);
	EQUAL(cuCtxDestroy_v2(second), 0);
	UNTIL(used() == CONTEXT);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
}

/* A hold gives up after a while, and its thread waits on: for what it was at, and for nothing after that. */
static void a_wait_that_was_given_up_spoils_none(void)
{
	static struct stub_meeting meeting;
	static struct stub_kernel until_met = {.meeting = &meeting, .ranks = 2};
	CUcontext second;
	CUdeviceptr p;

	begin_swap();
	EQUAL(real_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0);
	EQUAL(cuCtxCreate_v2(&second, 0, 0), 0);
	EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0); /* what was taken last is waited for first */
	launch(&until_met, NULL);
	CHECK(!hold_begin(false));
	hold_end();
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	atomic_store(&meeting.launched[1], 1);
	EQUAL(cuCtxDestroy_v2(second), 0); /* it is left by then */
	UNTIL(!hold_begin(false)); /* a capture is open */
	hold_end();
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	out_and_in();
}

/* Nobody can end it any more: the process moves all the same. */
static void one_whose_stream_goes_is_over(void)
{
	CUcontext second;
	CUdeviceptr p;

	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0);
	EQUAL(real_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	EQUAL(cuStreamDestroy_v2(stream), 0);
	CHECK(!captures_open());
	EQUAL(cuCtxCreate_v2(&second, 0, 0), 0);
	EQUAL(real_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	EQUAL(cuCtxDestroy_v2(second), 0);
	CHECK(!captures_open());
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	out_and_in();
}

/* ---- what graphs and streams do with memory by its address ---- */

static void *use_address(void *arg)
{
	CUdeviceptr p = *(CUdeviceptr *)arg;
	struct { CUdeviceptr to; size_t pitch; unsigned value, element; size_t width, height; } fill = {p, 0, 1, 4, 16, 1};
	CUgraphNode node;

	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(((CUresult (*)(CUgraph *, unsigned))driver("cuGraphCreate"))(&graph, 0), 0);
	EQUAL(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, ctx), 0);
	EQUAL(cuGraphMemsetNodeSetParams(node, &fill), 0);
	EQUAL(cuStreamWriteValue32_v2(stream, p, 7, 0), 0);
	atomic_store(&over, true);
	return NULL;
}

/* The driver refuses an address behind which there is no memory. */
static void what_names_memory_waits_for_it(void)
{
	CUdeviceptr p;
	pthread_t t;

	begin_swap();
	EQUAL(real_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0);
	out();
	EQUAL(pthread_create(&t, NULL, use_address, &p), 0);
	UNTIL(atomic_load(&memory_calls.waiting) == 1);
	CHECK(!atomic_load(&over));
	in();
	EQUAL(pthread_join(t, NULL), 0);
	EQUAL(*(unsigned *)(uintptr_t)p, 7);
}

MAIN(T(launches_of_another_thread_spoil_none), T(what_the_legacy_stream_did_spoils_none), T(memory_is_freed_beside_one),
	T(memory_of_a_context_that_ends_goes_with_it), T(a_wait_that_was_given_up_spoils_none), T(one_whose_stream_goes_is_over),
	T(what_names_memory_waits_for_it))
