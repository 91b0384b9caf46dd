/*
 * What is in flight. Every so many launches an event is put behind them; a launch waits when its stream has a few
 * milliseconds of work queued, so that a turn can end soon after it should.
 */
#include <pthread.h>
#include <stdlib.h>
#include "constants.h"
#include "driver_symbols.h"
#include "making_way.h"
#include "streams.h"
#include "system.h"

#define STREAMS 1024
#define MARKS 4
#define MARK_NS 500000.0        /* work between two marks, about */
#define MAX_BATCH 128
#define BACKLOG_NS (50 * MS)    /* a launch is not held longer: what is in flight may wait for it */

struct stream {
	_Atomic uintptr_t key;
	_Atomic(struct gate *) gate;
	pthread_mutex_t lock;
	CUstream handle;
	CUcontext ctx;
	CUevent event[MARKS + 1];      /* a ring; the one before the oldest waited for is where time is counted from */
	unsigned launches[MARKS + 1];  /* before each mark */
	bool alone[MARKS + 1];         /* and whether nothing was in flight before them */
	unsigned head;                 /* marks set so far */
	_Atomic unsigned waiting;      /* how many of them are not seen done */
	bool based;                    /* the mark before the oldest is a valid start of time */
	_Atomic unsigned unmarked, batch;
	double launch_ns;              /* a launch's time on the card, on average */
	double longest_ns;             /* that of the longest, lately */
	int64_t begun;                 /* when the oldest mark that is waited for became the oldest */
	struct making_way way;
};

static struct stream streams[STREAMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int captures;
#define ORIGINS 64
static struct { CUstream stream; CUcontext ctx; } origins[ORIGINS]; /* where captures began, as far as they are known by a handle */

static _Atomic int waits;       /* for contexts; while there is one no capture begins, */
#define HELD_OFF_NS (2000 * MS) /* but for no longer: what it waits for may wait for the capture's thread */

void capture_opens(void)
{
	int64_t give_up = now_ns() + HELD_OFF_NS;

	atomic_fetch_add(&captures, 1);
	while (atomic_load(&waits) && now_ns() < give_up)
		sleep_ns(MS / 50);
}

bool captures_hold_off(void)
{
	atomic_fetch_add(&waits, 1);
	if (!captures_open())
		return true;
	atomic_fetch_sub(&waits, 1);
	return false;
}

void captures_let_begin(void) { atomic_fetch_sub(&waits, 1); }

void capture_begun(CUstream stream, bool begun)
{
	if (!begun) {
		atomic_fetch_sub(&captures, 1);
		return;
	}
	pthread_mutex_lock(&lock);
	for (int i = 0; i < ORIGINS && (uintptr_t)stream > CU_STREAM_PER_THREAD; i++) {
		if (origins[i].stream)
			continue;
		origins[i].stream = stream;
		if (!real_cuStreamGetCtx || real_cuStreamGetCtx(stream, &origins[i].ctx) != CUDA_SUCCESS)
			origins[i].ctx = NULL;
		break;
	}
	pthread_mutex_unlock(&lock);
}

void capture_over(CUstream stream)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < ORIGINS; i++)
		if (origins[i].stream == stream)
			origins[i].stream = NULL;
	pthread_mutex_unlock(&lock);
	atomic_fetch_sub(&captures, 1);
}

/* Captures that nobody can end any more. */
static void captures_forget(CUstream stream, CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < ORIGINS; i++)
		if (origins[i].stream && (origins[i].stream == stream || (ctx && origins[i].ctx == ctx))) {
			origins[i].stream = NULL;
			atomic_fetch_sub(&captures, 1);
		}
	pthread_mutex_unlock(&lock);
}

bool captures_open(void) { return atomic_load(&captures) > 0; }

bool stream_capturing(CUstream stream)
{
	int status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!atomic_load_explicit(&captures, memory_order_relaxed) || !stream || !real_cuStreamIsCapturing)
		return false;
	return real_cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct relaxed capture_relax(void)
{
	struct relaxed r = {CU_STREAM_CAPTURE_MODE_RELAXED, captures_open() && real_cuThreadExchangeStreamCaptureMode};
	if (r.on)
		real_cuThreadExchangeStreamCaptureMode(&r.mode);
	return r;
}

void capture_unrelax(struct relaxed r)
{
	if (r.on)
		real_cuThreadExchangeStreamCaptureMode(&r.mode);
}

void capture_relax_thread(void)
{
	int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (real_cuThreadExchangeStreamCaptureMode)
		real_cuThreadExchangeStreamCaptureMode(&relaxed);
}

static uintptr_t stream_key(CUstream stream)
{
	static _Thread_local char thread_mark;
	CUcontext ctx = NULL;

	if ((uintptr_t)stream > CU_STREAM_PER_THREAD)
		return (uintptr_t)stream;
	real_cuCtxGetCurrent(&ctx); /* the default streams are one per context, and one per thread of it */
	if ((uintptr_t)stream == CU_STREAM_PER_THREAD)
		return ((uintptr_t)ctx ^ (uintptr_t)&thread_mark) | 1;
	return (uintptr_t)ctx | 1;
}

static struct stream *find(uintptr_t key)
{
	size_t start = (key * 0x9e3779b97f4a7c15) >> 54;

	for (size_t i = 0; i < STREAMS; i++) {
		struct stream *s = &streams[(start + i) % STREAMS];
		uintptr_t there = atomic_load_explicit(&s->key, memory_order_acquire);
		if (there == key)
			return s;
		if (!there)
			return NULL;
	}
	return NULL;
}

#define FORGOTTEN ((uintptr_t)-1)
#define ORPHAN 2 /* in the low bits of its own address */

static struct stream *add(uintptr_t key, CUstream handle, struct gate *g)
{
	size_t start = (key * 0x9e3779b97f4a7c15) >> 54;
	struct stream *s = NULL;

	pthread_mutex_lock(&lock);
	s = find(key);
	for (size_t i = 0; i < STREAMS && !s; i++) {
		struct stream *free_one = &streams[(start + i) % STREAMS];
		uintptr_t there = atomic_load(&free_one->key);
		if (there && there != FORGOTTEN)
			continue;
		s = free_one;
		pthread_mutex_lock(&s->lock); /* a slot used before may still be looked at; all zero is an open lock */
		s->handle = handle;
		s->head = 0;
		atomic_store(&s->waiting, 0);
		s->based = false;
		s->launch_ns = s->longest_ns = 0;
		s->way = (struct making_way){0, now_ns()};
		atomic_store(&s->unmarked, 0);
		atomic_store(&s->batch, 1);
		atomic_store(&s->gate, g);
		real_cuCtxGetCurrent(&s->ctx);
		for (int e = 0; e <= MARKS; e++)
			if (real_cuEventCreate(&s->event[e], 0) != CUDA_SUCCESS)
				s->event[e] = NULL;
		atomic_store_explicit(&s->key, key, memory_order_release);
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&lock);
	return s;
}

static void learn(struct stream *s, unsigned done)
{
	CUevent end = s->event[done % (MARKS + 1)], begin = s->event[(done + MARKS) % (MARKS + 1)];
	unsigned n = s->launches[done % (MARKS + 1)];
	float ms;

	if (s->based && n && real_cuEventElapsedTime(&ms, begin, end) == CUDA_SUCCESS) {
		double each = ms * 1e6 / n, batch, since = (double)(now_ns() - s->begun);
		if (s->alone[done % (MARKS + 1)] && n == 1 && since < each)
			each = since; /* the stream was empty before it, maybe for long: it took no longer than we have waited for it */
		s->launch_ns = s->launch_ns ? s->launch_ns * 0.75 + each * 0.25 : each;
		s->longest_ns = each > s->longest_ns ? each : s->longest_ns * 0.9 + each * 0.1;
		batch = s->launch_ns < MARK_NS / MAX_BATCH ? MAX_BATCH : MARK_NS / s->launch_ns;
		if ((uintptr_t)s->handle == CU_STREAM_PER_THREAD)
			batch = 1; /* only its own thread can mark it */
		atomic_store(&s->batch, batch < 1 ? 1 : (unsigned)batch);
	}
	s->based = true;
}

/* Looks at the marks that are done, oldest first. To ask for an event spoils a capture of another stream, if this thread does not say so. */
static void advance(struct stream *s)
{
	struct relaxed relaxed;

	if (!s->waiting)
		return;
	relaxed = capture_relax();
	while (s->waiting && real_cuEventQuery(s->event[(s->head - s->waiting) % (MARKS + 1)]) != CUDA_ERROR_NOT_READY) {
		learn(s, s->head - s->waiting);
		s->waiting--;
		s->begun = now_ns();
	}
	capture_unrelax(relaxed);
}

/* How long what is marked goes on, about; 0 if there is nothing, or it should be over. Without experience it is long. */
static int64_t remaining(struct stream *s)
{
	unsigned launches = 0;
	int64_t past;

	if (!s->waiting)
		return 0;
	if (s->launch_ns == 0)
		return INT64_MAX;
	for (unsigned i = s->head - s->waiting; i != s->head; i++)
		launches += s->launches[i % (MARKS + 1)];
	past = now_ns() - s->begun;
	return launches * s->launch_ns > (double)past ? (int64_t)(launches * s->launch_ns) - past : 0;
}

static void mark(struct stream *s)
{
	unsigned n = atomic_exchange(&s->unmarked, 0);
	unsigned at = s->head % (MARKS + 1);

	if (!n)
		return;
	s->launches[at] = n;
	if (s->event[at] && real_cuEventRecord(s->event[at], s->handle) == CUDA_SUCCESS) {
		s->head++;
		s->alone[at] = !s->waiting;
		if (!s->waiting++)
			s->begun = now_ns();
	}
}

/*
 * A stream that has joined a capture takes no mark of ours, nor does the legacy stream while one that waits for it is captured:
 * to use it then spoils the capture, and to ask does not.
 */
static bool takes_marks(CUstream stream)
{
	int status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult r;

	if (!captures_open() || !real_cuStreamIsCapturing)
		return true;
	r = real_cuStreamIsCapturing(stream, &status);
	return r != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT && (r != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE);
}

static void mark_if_allowed(struct stream *s)
{
	if (takes_marks(s->handle))
		mark(s);
	else
		atomic_store(&s->unmarked, 0); /* what it did before is over soon */
}

/* So much is in flight on a stream that it gets no more. */
static bool full(struct stream *s) { return s->waiting >= (s->launch_ns > 2 * MARK_NS ? 2 : MARKS); }

/*
 * The same by time, where others wait for short turns. Of launches shorter than a mark's worth a mark may be in flight in
 * any case: their times differ, and the card would run dry.
 */
static bool longer(struct stream *s, int64_t most)
{
	return s->waiting && s->launch_ns > 0 && (s->waiting > 1 || s->launch_ns > MARK_NS) && remaining(s) > most;
}

static _Thread_local struct stream *last; /* on which this thread launched last */

/* NULL if there are more streams than we follow: their work is charged while others are in flight. */
static struct stream *stream_found(struct gate *g, CUstream stream)
{
	uintptr_t key = stream_key(stream);
	struct stream *s = last && atomic_load_explicit(&last->key, memory_order_acquire) == key ? last : find(key);

	if (!s)
		s = add(key, stream, g);
	if (s)
		last = s;
	return s;
}

bool stream_is_last(CUstream stream)
{
	return last && atomic_load_explicit(&last->key, memory_order_acquire) == stream_key(stream);
}

bool stream_last_done(void)
{
	bool done;

	if (!last || atomic_load_explicit(&last->unmarked, memory_order_relaxed))
		return false;
	if (!atomic_load(&last->waiting))
		return true;
	pthread_mutex_lock(&last->lock);
	advance(last);
	done = !last->waiting;
	pthread_mutex_unlock(&last->lock);
	return done;
}

/* The thread that watches the card puts the marks, but for streams that only their own thread can mark. */
void stream_counted(struct gate *g, CUstream stream)
{
	struct stream *s = stream_found(g, stream);

	if (!s || (atomic_fetch_add(&s->unmarked, 1), (uintptr_t)s->handle != CU_STREAM_PER_THREAD))
		return;
	pthread_mutex_lock(&s->lock);
	advance(s);
	if (s->waiting == MARKS) { /* the newest mark moves behind this launch */
		s->head--;
		s->waiting--;
		atomic_fetch_add(&s->unmarked, s->launches[s->head % (MARKS + 1)]);
	}
	mark(s);
	pthread_mutex_unlock(&s->lock);
}

void stream_shorten(CUstream stream, int64_t most, _Atomic unsigned *gate, unsigned state)
{
	struct stream *s = find(stream_key(stream));
	int64_t give_up;

	if (!s || !atomic_load_explicit(&s->waiting, memory_order_relaxed) || atomic_load_explicit(&s->unmarked, memory_order_relaxed))
		return;
	give_up = now_ns() + BACKLOG_NS;
	pthread_mutex_lock(&s->lock);
	advance(s);
	while (longer(s, most) && atomic_load(gate) == state && now_ns() < give_up) {
		pthread_mutex_unlock(&s->lock);
		sleep_ns(MS / 50);
		pthread_mutex_lock(&s->lock);
		advance(s);
	}
	pthread_mutex_unlock(&s->lock);
}

void stream_hold(CUstream stream, int64_t until, _Atomic unsigned *gate, unsigned state)
{
	int64_t now = now_ns();
	struct stream *s = find(stream_key(stream));
	bool waits;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	waits = way_is_made(&s->way, (int64_t)s->longest_ns, until, now);
	pthread_mutex_unlock(&s->lock);
	if (!waits)
		return;
	while (atomic_load(gate) == state && now_ns() < until)
		sleep_ns(MS / 50);
	pthread_mutex_lock(&s->lock);
	way_was_made(&s->way, now_ns() - now);
	pthread_mutex_unlock(&s->lock);
}

void stream_launched(struct gate *g, CUstream stream)
{
	struct stream *s = stream_found(g, stream);
	int64_t give_up = 0;

	if (!s)
		return;
	if (atomic_fetch_add(&s->unmarked, 1) + 1 < atomic_load_explicit(&s->batch, memory_order_relaxed))
		return;
	pthread_mutex_lock(&s->lock);
	advance(s);
	mark(s);
	while (full(s)) {
		int64_t now = now_ns();
		if (!give_up)
			give_up = now + BACKLOG_NS;
		if (now > give_up && s->waiting < MARKS)
			break;
		if (now > give_up + BACKLOG_NS) {
			s->waiting = 1; /* the newest mark stands for all before it */
			s->based = false;
			break;
		}
		pthread_mutex_unlock(&s->lock);
		sleep_ns(MS / 50);
		pthread_mutex_lock(&s->lock);
		advance(s);
	}
	pthread_mutex_unlock(&s->lock);
}

static void forget(struct stream *s)
{
	for (int e = 0; e <= MARKS; e++)
		if (s->event[e])
			real_cuEventDestroy_v2(s->event[e]);
	atomic_store(&s->unmarked, 0);
	atomic_store(&s->waiting, 0);
	atomic_store(&s->key, FORGOTTEN);
}

static bool idle(struct stream *s)
{
	if (atomic_load(&s->unmarked) && (uintptr_t)s->handle != CU_STREAM_PER_THREAD && s->waiting < MARKS) {
		real_cuCtxSetCurrent(s->ctx);
		mark_if_allowed(s);
	}
	if (s->waiting) {
		real_cuCtxSetCurrent(s->ctx);
		advance(s);
	}
	return !s->waiting;
}

bool streams_idle(struct gate *g)
{
	bool all = true;

	for (int i = 0; i < STREAMS; i++) {
		struct stream *s = &streams[i];
		uintptr_t key = atomic_load_explicit(&s->key, memory_order_acquire);
		if (!key || key == FORGOTTEN || atomic_load(&s->gate) != g)
			continue;
		if (!atomic_load(&s->unmarked) && !atomic_load(&s->waiting) && key != ((uintptr_t)s | ORPHAN))
			continue;
		pthread_mutex_lock(&s->lock);
		if (atomic_load(&s->key) == key && !idle(s))
			all = false;
		else if (key == ((uintptr_t)s | ORPHAN))
			forget(s);
		pthread_mutex_unlock(&s->lock);
	}
	return all;
}

bool streams_ending(struct gate *g, int64_t within)
{
	bool all = true;

	for (int i = 0; i < STREAMS && all; i++) {
		struct stream *s = &streams[i];
		uintptr_t key = atomic_load_explicit(&s->key, memory_order_acquire);
		if (!key || key == FORGOTTEN || atomic_load(&s->gate) != g || !atomic_load(&s->waiting))
			continue;
		pthread_mutex_lock(&s->lock);
		if (atomic_load(&s->key) == key && remaining(s) > within)
			all = false;
		pthread_mutex_unlock(&s->lock);
	}
	return all;
}

static void mark_now(struct stream *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	advance(s);
	mark_if_allowed(s);
	pthread_mutex_unlock(&s->lock);
}

/* With the capture counted: nobody marks the legacy stream from now on without a look at whether that may be. */
void stream_before_capture(CUstream stream)
{
	mark_now(find(stream_key(stream)));
	mark_now(find(stream_key(NULL)));
}

/* A destroyed stream may still have work in flight: its last mark stays until it is done. */
void stream_forget(CUstream stream)
{
	struct stream *s = (uintptr_t)stream > CU_STREAM_PER_THREAD ? find((uintptr_t)stream) : NULL;

	captures_forget(stream, NULL);
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	advance(s);
	mark(s);
	s->handle = (CUstream)CU_STREAM_PER_THREAD;
	atomic_store(&s->key, (uintptr_t)s | ORPHAN);
	pthread_mutex_unlock(&s->lock);
}

void context_forget(CUcontext ctx)
{
	captures_forget(NULL, ctx);
	for (int i = 0; ctx && i < STREAMS; i++) {
		uintptr_t key = atomic_load(&streams[i].key);
		if (!key || key == FORGOTTEN)
			continue;
		pthread_mutex_lock(&streams[i].lock);
		if (streams[i].ctx == ctx)
			forget(&streams[i]);
		pthread_mutex_unlock(&streams[i].lock);
	}
}

void streams_fork_child(void)
{
	for (int i = 0; i < STREAMS; i++) {
		atomic_store(&streams[i].key, 0);
		pthread_mutex_init(&streams[i].lock, NULL);
	}
	pthread_mutex_init(&lock, NULL);
	for (int i = 0; i < ORIGINS; i++)
		origins[i].stream = NULL;
	atomic_store(&captures, 0);
	atomic_store(&waits, 0);
}
