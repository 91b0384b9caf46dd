/*
 * Device memory leaves the card and comes back to the same addresses. Out: calls that touch memory are held
 * back, what is in flight ends, chunks are copied to pinned host memory, unmapped and released. In: the way back.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "array_memory.h"
#include "blocks.h"
#include "copy_streams.h"
#include "driver_symbols.h"
#include "graph_memory.h"
#include "host_pool.h"
#include "ledger.h"
#include "memory_calls.h"
#include "movable_memory.h"
#include "pool_memory.h"
#include "pools.h"
#include "settle.h"
#include "shared_exports.h"
#include "streams.h"
#include "swap.h"
#include "system.h"

#define MARGIN (32 * MiB) /* what the driver may need beside */
_Atomic int64_t swap_quiet_ns = 30000 * MS;

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER; /* one out or in at a time */
static pthread_mutex_t leaving = PTHREAD_MUTEX_INITIALIZER; /* what is another's leaves, */
static pthread_mutex_t sharing = PTHREAD_MUTEX_INITIALIZER; /* or comes back */
static _Atomic bool held;                                 /* calls are held back for what is ours, */
static _Atomic bool held_for_others;                      /* or for what is another's */
static _Atomic bool returns;                              /* an owner says that its memory is there again */
static _Atomic(const char *) pinned;
static _Atomic bool busy;                                 /* memory is on its way: what the driver reports is in between */

void swap_pin(const char *reason) { atomic_store(&pinned, reason); }
bool swap_is_busy(void) { return atomic_load(&busy); }
/* Also where all that is out has been freed: its calls wait until it is let in. */
bool swap_is_out(void) { return atomic_load(&held); }
bool swap_is_away(void) { return swap_is_out() || shared_imports_away(); }

static void *fail(struct swap_result *r, const char *why)
{
	snprintf(r->why, sizeof r->why, "%s", why);
	return NULL;
}

static void find_unmovable(struct holding *h, void *arg)
{
	static const char *const names[] = {
		[HOLD_PTR] = "memory from before swapping was allowed", [HOLD_ARRAY] = "arrays",
		[HOLD_VMM] = "virtual memory of another process, or from before swapping was allowed", [HOLD_POOL] = "memory pools",
		[HOLD_IPC] = "memory of another process", [HOLD_EXTERNAL] = "external memory", [HOLD_OWN] = NULL,
	};
	const char **why = arg;

	if (h->bytes && names[h->kind])
		*why = names[h->kind];
}

/* Why this process cannot be moved; NULL if it can. */
static const char *unmovable(void)
{
	const char *why = atomic_load(&pinned);

	if (!atomic_load(&session.swap))
		return "swapping is not allowed for this container";
	for (int i = 0; i < session.devices; i++)
		pools_refresh(&session.device[i], true);
	ledger_lock();
	if (!why)
		ledger_each(find_unmovable, &why);
	ledger_unlock();
	return why ? why : shared_imports_refusal();
}

const char *swap_refusal(void) { return swap_is_away() ? NULL : unmovable(); }

static CUresult copy_chunk(struct block *b, struct chunk *c, CUdeviceptr at, bool out)
{
	CUstream stream = copy_stream(block_context(b));
	CUresult r;
	uint64_t done = 0, n;

	if (b->tiles)
		return arrays_copy(b, c, stream, out);
	r = block_open(b);
	if (b->program)
		at = b->base;
	for (; r == CUDA_SUCCESS && done < c->size; done += n) {
		void *host = host_piece(c->at + done, c->size - done, &n);
		r = out ? real_cuMemcpyDtoHAsync_v2(host, at + done, n, stream) : real_cuMemcpyHtoDAsync_v2(at + done, host, n, stream);
	}
	return r;
}

static CUresult settle_copies(void)
{
	CUresult r = CUDA_SUCCESS;

	for (struct block *b = blocks; b && r == CUDA_SUCCESS; b = b->next)
		r = real_cuStreamSynchronize(copy_stream(block_context(b)));
	return r;
}

/* ---- out: copies go ahead while what has been copied is given back, a batch behind them ---- */

#define BATCH GiB
struct part { struct block *block; struct chunk *chunk; CUdeviceptr at; };
struct batch { unsigned first, end; CUevent over; };

/* What is another process's moves with that; what others have of ours, when they have let go of it. */
static bool moves(const struct block *b, bool shared) { return !b->import && (shared || !b->importers); }

static uint64_t take_chunks(uint64_t want, bool shared, struct part *parts, unsigned *n, struct swap_result *r)
{
	uint64_t chosen = 0;

	EACH_CHUNK(b, c, at) {
		if (c->out || chosen >= want || *r->why || !moves(b, shared))
			continue;
		if (!parts || !host_take(c->size, &c->at)) {
			fail(r, "no host memory");
			continue;
		}
		parts[(*n)++] = (struct part){b, c, at};
		c->out = true;
		chosen += c->size;
	}
	return chosen;
}

/* Chooses chunks, and host memory for all of them before any of them moves. */
static unsigned choose(uint64_t want, bool shared, struct part **parts, struct swap_result *r)
{
	uint64_t chosen;
	unsigned n = 0;

	EACH_CHUNK(b, c, at) {
		(void)b, (void)c, (void)at;
		n++;
	}
	*parts = calloc(n + 1, sizeof **parts);
	n = 0;
	chosen = take_chunks(want, false, *parts, &n, r);
	if (shared && chosen < want)
		take_chunks(want - chosen, true, *parts, &n, r);
	return n;
}

/* Begins to copy some chunks of one context. */
static CUresult begin_batch(struct part *parts, unsigned n, struct batch *t)
{
	CUcontext ctx = block_context(parts[t->first].block);
	CUresult r = CUDA_SUCCESS;
	uint64_t bytes = 0;

	for (t->end = t->first; t->end < n && bytes < BATCH && block_context(parts[t->end].block) == ctx; t->end++) {
		struct part *p = &parts[t->end];
		r = copy_chunk(p->block, p->chunk, p->at, true);
		if (r != CUDA_SUCCESS)
			return r;
		bytes += p->chunk->size;
	}
	r = real_cuEventCreate(&t->over, CU_EVENT_NO_TIMING);
	return r == CUDA_SUCCESS ? real_cuEventRecord(t->over, copy_stream(ctx)) : r;
}

static CUresult end_batch(struct part *parts, struct batch *t)
{
	CUresult r;

	if (!t->over)
		return CUDA_SUCCESS;
	r = real_cuEventSynchronize(t->over);
	for (unsigned i = t->first; r == CUDA_SUCCESS && i < t->end; i++)
		chunk_leave(parts[i].block, parts[i].chunk, parts[i].at);
	real_cuEventDestroy_v2(t->over);
	t->over = NULL;
	return r;
}

/* An error of the driver in the middle leaves what is on the host there, for the way back. */
static uint64_t move_out(uint64_t want, bool shared, struct swap_result *r)
{
	uint64_t before = blocks_out();
	int64_t begin = now_ns();
	CUresult result = CUDA_SUCCESS;
	struct part *parts = NULL;
	unsigned n = choose(want, shared, &parts, r);
	struct batch now = {0}, last = {0};

	while (result == CUDA_SUCCESS && !*r->why && now.first < n) {
		result = begin_batch(parts, n, &now);
		if (result == CUDA_SUCCESS)
			result = end_batch(parts, &last);
		if (result != CUDA_SUCCESS)
			break;
		last = now;
		now = (struct batch){.first = last.end};
	}
	if (result == CUDA_SUCCESS)
		result = end_batch(parts, &last);
	else
		settle_copies(); /* what is on its way still uses that memory */
	free(parts);
	r->copy_s = (double)(now_ns() - begin) / 1e9;
	if (result != CUDA_SUCCESS)
		snprintf(r->why, sizeof r->why, "the driver answered %d", result);
	return blocks_out() - before;
}

static uint64_t resident_bytes(bool shared)
{
	uint64_t sum = 0;
	EACH_CHUNK(b, c, at) {
		(void)at;
		sum += c->out || !moves(b, shared) ? 0 : c->size;
	}
	return sum;
}

static void unchoose(void)
{
	EACH_CHUNK(b, c, at) {
		(void)at;
		if (c->handle) {
			c->out = false;
			block_close(b);
		}
	}
}

static void moved(void)
{
	for (int i = 0; i < session.devices; i++)
		atomic_fetch_add(&session.device[i].changes, 1);
	atomic_store(&busy, false);
}

/*
 * Holds every call back at a moment when no graph is being captured: waiting for a context would spoil the capture. NULL,
 * or why that moment did not come.
 */
static const char *quiet(int64_t deadline)
{
	const char *why;
	bool capturing;

	for (;;) {
		if (!memory_calls_hold(deadline))
			return "calls into the driver did not end";
		capturing = captures_open(); /* it may end at any time */
		why = capturing ? "the capture of a graph did not end" : unmovable(); /* it may have changed meanwhile */
		if (!why)
			return NULL;
		memory_calls_release();
		if (!capturing || now_ns() > deadline)
			return why;
		sleep_ns(MS);
	}
}

/*
 * Host memory for what is to leave, before anything is held back: to touch and pin 60 GiB takes seconds, in which the
 * program goes on. Where it falls short, the move itself asks for the rest, and says so.
 */
static void prepare_host(uint64_t bytes)
{
	CUcontext context;
	uint64_t there;

	blocks_lock(); /* the program goes on */
	there = resident_bytes(true);
	context = blocks ? block_context(blocks) : NULL;
	blocks_unlock();
	if (context && real_cuCtxSetCurrent(context) == CUDA_SUCCESS)
		(void)host_prepare(bytes < there ? bytes : there);
}

/* What is in flight ends, within that time; NULL, or why it did not. */
static const char *settled(enum settle_for whose, int64_t deadline)
{
	CUresult r;

	if (!settle(whose, deadline, &r))
		return "its work on the card does not end: it may wait for another process";
	return r == CUDA_SUCCESS ? NULL : "its work on the card failed";
}

/* Everything of ours is on the card: others may have their part of it, and calls go on. */
static void all_is_here(void)
{
	host_reset();
	shared_exports_return();
	if (atomic_exchange(&held, false))
		memory_calls_release();
}

/* With the lock of blocks.h: whether what is to move includes what others have. */
static bool others_concerned(uint64_t bytes)
{
	uint64_t alone = resident_bytes(false);

	return bytes > alone && resident_bytes(true) > alone;
}

/* So much, or all there is, with the calls held back. Nobody can be given memory between a look at who has it and the move. */
static void move(uint64_t bytes, struct swap_result *r)
{
	bool shared;

	blocks_lock();
	shared = others_concerned(bytes);
	if (shared) { /* they leave first: what is in flight here has ended, and no longer waits for launches of theirs */
		blocks_unlock();
		if (!shared_exports_leave(now_ns() + swap_quiet_ns + swap_quiet_ns / 6, r->why, sizeof r->why))
			return;
		blocks_lock();
	}
	r->bytes = move_out(bytes, shared, r);
	unchoose(); /* what was chosen and has not moved */
	if (!*r->why && bytes == UINT64_MAX && resident_bytes(true))
		fail(r, "memory came to be on the card meanwhile");
	blocks_unlock();
}

/* Holds the calls back until nothing is in flight; NULL, or why that cannot be, and they go on. */
static const char *hold_back(uint64_t bytes)
{
	const char *why;

	prepare_host(bytes);
	why = quiet(now_ns() + swap_quiet_ns);
	if (why)
		return why;
	why = settled(SETTLE_FOR_OWN, now_ns() + swap_quiet_ns);
	if (why)
		memory_calls_release();
	atomic_store(&held, !why);
	return why;
}

void swap_out(uint64_t bytes, struct swap_result *r)
{
	int64_t begin = now_ns();
	const char *why;
	bool was_out;

	memset(r, 0, sizeof *r);
	pthread_mutex_lock(&order);
	was_out = swap_is_out();
	why = unmovable();
	if (!why && !was_out)
		why = hold_back(bytes);
	if (why) {
		fail(r, why);
	} else {
		atomic_store(&busy, true);
		if (!blocks_out()) { /* what nobody has any more, or is only retained, need not be copied */
			movable_free_late();
			graph_memory_settle();
			pooled_trim_all(true);
		}
		move(bytes, r);
		r->done = !*r->why;
		moved();
		if (!blocks_out() && !was_out)
			all_is_here();
	}
	r->total_s = (double)(now_ns() - begin) / 1e9;
	pthread_mutex_unlock(&order);
}

static bool card_has(uint64_t bytes, uint64_t *missing)
{
	size_t free_now = 0, total;

	if (blocks)
		real_cuCtxSetCurrent(block_context(blocks));
	if (!real_cuMemGetInfo_v2 || real_cuMemGetInfo_v2(&free_now, &total) != CUDA_SUCCESS)
		return true; /* cannot be asked: try */
	*missing = free_now < bytes + MARGIN ? bytes + MARGIN - free_now : 0;
	return *missing == 0;
}

static CUresult copy_in(void)
{
	CUresult r = CUDA_SUCCESS, settled;

	EACH_CHUNK(b, c, at) {
		if (!c->out || r != CUDA_SUCCESS)
			continue;
		real_cuCtxSetCurrent(block_context(b));
		if (chunk_make(b, c, at, &r))
			r = copy_chunk(b, c, at, false);
	}
	settled = settle_copies();
	if (r == CUDA_SUCCESS)
		r = settled;
	EACH_CHUNK(b, c, at) {
		if (!c->out || !c->handle)
			continue;
		if (r != CUDA_SUCCESS) { /* the host still has it all */
			chunk_free(b, c, at);
		} else {
			chunk_back(b, c);
		}
	}
	return r;
}

void swap_in(struct swap_result *r, uint64_t *missing)
{
	int64_t begin = now_ns();
	uint64_t bytes;
	CUresult result;

	memset(r, 0, sizeof *r);
	*missing = 0;
	pthread_mutex_lock(&order);
	atomic_store(&busy, true);
	blocks_lock();
	bytes = blocks_out();
	if (!bytes) {
		r->done = true;
	} else if (!card_has(bytes, missing)) {
		snprintf(r->why, sizeof r->why, "the card lacks %llu bytes", (unsigned long long)*missing);
	} else if ((result = copy_in()) != CUDA_SUCCESS) {
		*missing = result == CUDA_ERROR_OUT_OF_MEMORY ? 8 * MARGIN : 0; /* a neighbour was faster, or the pieces do not fit */
		snprintf(r->why, sizeof r->why, "the driver answered %d", result);
	} else {
		r->done = true;
		r->bytes = bytes;
	}
	blocks_unlock();
	moved();
	r->copy_s = r->total_s = (double)(now_ns() - begin) / 1e9;
	if (r->done)
		all_is_here();
	pthread_mutex_unlock(&order);
}

/* ---- with the memory of another process ---- */

static void leave(pid_t owner, uint64_t secret)
{
	pthread_mutex_lock(&sharing);
	shared_imports_leave(owner, secret);
	if (atomic_exchange(&held_for_others, true))
		memory_calls_release();
	atomic_store(&returns, true); /* it may have given up meanwhile */
	pthread_mutex_unlock(&sharing);
}

/* Called by one thread alone. */
const char *swap_leave(pid_t owner, uint64_t secret)
{
	int64_t deadline = now_ns() + swap_quiet_ns;
	const char *why;

	if (!shared_imports_of(owner, secret))
		return NULL;
	why = quiet(deadline);
	if (why)
		return why;
	pthread_mutex_lock(&leaving);
	why = settled(SETTLE_FOR_OTHERS, deadline);
	if (why)
		memory_calls_release();
	else
		leave(owner, secret);
	pthread_mutex_unlock(&leaving);
	return why;
}

void swap_returns(void) { atomic_store(&returns, true); }

/* An owner that does not say so is looked at every half second; by one whose calls wait, more often. */
void swap_return(void)
{
	static int64_t next;
	bool wanted = atomic_load(&memory_calls.waiting) > 0;

	if ((!shared_imports_away() && !atomic_load(&held_for_others)) || (!atomic_load(&returns) && now_ns() < next))
		return;
	pthread_mutex_lock(&sharing);
	atomic_store(&returns, false);
	if (shared_imports_return(wanted) && atomic_exchange(&held_for_others, false))
		memory_calls_release();
	next = now_ns() + (wanted ? 20 : 500) * MS;
	pthread_mutex_unlock(&sharing);
}

void swap_prepare(uint64_t bytes, struct swap_result *r)
{
	int64_t begin = now_ns();
	bool there;

	memset(r, 0, sizeof *r);
	pthread_mutex_lock(&order);
	blocks_lock();
	there = blocks;
	if (there)
		real_cuCtxSetCurrent(block_context(blocks));
	blocks_unlock();
	if (!there)
		fail(r, "no memory on the card yet");
	else if (!(r->done = host_prepare(bytes)))
		fail(r, "no host memory");
	r->bytes = host_prepared();
	r->total_s = (double)(now_ns() - begin) / 1e9;
	pthread_mutex_unlock(&order);
}

void swap_pause(CUcontext ends)
{
	pthread_mutex_lock(&order);
	pthread_mutex_lock(&leaving);
	pthread_mutex_lock(&sharing);
	settle_pause(ends, now_ns() + swap_quiet_ns);
}

void swap_resume(void)
{
	settle_resume();
	pthread_mutex_unlock(&sharing);
	pthread_mutex_unlock(&leaving);
	pthread_mutex_unlock(&order);
}

void swap_fork_child(void)
{
	pthread_mutex_init(&order, NULL);
	pthread_mutex_init(&leaving, NULL);
	pthread_mutex_init(&sharing, NULL);
	atomic_store(&held, false);
	atomic_store(&held_for_others, false);
	shared_imports_fork_child();
	shared_exports_fork_child();
	movable_fork_child();
	blocks_fork_child();
	copy_streams_fork_child();
	settle_fork_child();
	atomic_store(&pinned, NULL);
	host_fork_child();
}
