/*
 * What is in flight may wait for another process, which may wait for this one: so there is a limit to how long it is waited
 * for. The driver's own wait for a context has none. A thread does it, and goes on with it where the limit was too short.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include "blocks.h"
#include "driver_symbols.h"
#include "settle.h"
#include "system.h"

enum { RESTS, WORKS };
static struct settler {
	pthread_mutex_t lock;     /* one asks at a time, and none while a context ends */
	_Atomic unsigned state;   /* futex */
	_Atomic bool started;
	CUcontext *ctx;           /* what it waits for; NULL: it has ended */
	unsigned n;
	pthread_mutex_t step;     /* what of that is next, or ends */
	CUcontext at;             /* the one that it waits for now */
	CUresult result;
} settlers[SETTLES] = {
	{.lock = PTHREAD_MUTEX_INITIALIZER, .step = PTHREAD_MUTEX_INITIALIZER},
	{.lock = PTHREAD_MUTEX_INITIALIZER, .step = PTHREAD_MUTEX_INITIALIZER},
};

static CUcontext go_to(struct settler *s, CUcontext *next)
{
	CUcontext ctx;

	pthread_mutex_lock(&s->step);
	ctx = s->at = next ? *next : NULL;
	pthread_mutex_unlock(&s->step);
	return ctx;
}

static CUresult wait_for_all(struct settler *s)
{
	CUresult r = CUDA_SUCCESS;

	for (unsigned i = 0; i < s->n && r == CUDA_SUCCESS; i++) {
		CUcontext ctx = go_to(s, &s->ctx[i]);
		if (!ctx)
			continue;
		r = real_cuCtxSetCurrent(ctx);
		if (r == CUDA_SUCCESS)
			r = real_cuCtxSynchronize();
	}
	go_to(s, NULL);
	return r;
}

/* Nobody waits for the rest any more, and calls go on: to wait for a context then would spoil what is captured in it. */
static void give_up(struct settler *s)
{
	pthread_mutex_lock(&s->step);
	memset(s->ctx, 0, s->n * sizeof *s->ctx);
	pthread_mutex_unlock(&s->step);
}

static void *work(void *arg)
{
	struct settler *s = arg;

	prctl(PR_SET_NAME, "elastic-settle");
	for (;;) {
		if (atomic_load(&s->state) == RESTS) {
			futex_wait(&s->state, RESTS, 1000 * MS);
			continue;
		}
		s->result = wait_for_all(s);
		atomic_store(&s->state, RESTS);
		futex_wake(&s->state);
	}
	return NULL;
}

static bool rests(struct settler *s, int64_t deadline)
{
	int64_t left;

	while (atomic_load(&s->state) == WORKS && (left = deadline - now_ns()) > 0)
		futex_wait(&s->state, WORKS, left);
	return atomic_load(&s->state) == RESTS;
}

static void note(struct settler *s, CUcontext ctx)
{
	unsigned i = 0;

	while (i < s->n && s->ctx[i] != ctx)
		i++;
	if (i == s->n)
		s->ctx[s->n++] = ctx;
}

/*
 * Each context once that has memory, and each card's own: it may work with memory that was opened in another's. False without
 * memory to note them.
 */
static bool collect(struct settler *s)
{
	unsigned most = (unsigned)session.devices;

	s->n = 0;
	blocks_lock();
	for (struct block *b = blocks; b; b = b->next)
		most++;
	free(s->ctx);
	s->ctx = calloc(most + 1, sizeof *s->ctx);
	for (struct block *b = blocks; b && s->ctx; b = b->next)
		note(s, block_context(b));
	for (int i = 0; i < session.devices && s->ctx; i++)
		if (atomic_load(&session.device[i].primary))
			note(s, atomic_load(&session.device[i].primary));
	blocks_unlock();
	return s->ctx != NULL;
}

static bool start(struct settler *s)
{
	if (!atomic_load(&s->started))
		atomic_store(&s->started, thread_start(work, s));
	return atomic_load(&s->started);
}

bool settle(enum settle_for why, int64_t deadline, CUresult *r)
{
	struct settler *s = &settlers[why];
	bool done;

	pthread_mutex_lock(&s->lock);
	*r = CUDA_SUCCESS;
	done = rests(s, deadline); /* the last one may still go on */
	if (done && (!collect(s) || !start(s))) {
		*r = CUDA_ERROR_OUT_OF_MEMORY;
	} else if (done) {
		atomic_store(&s->state, WORKS);
		futex_wake(&s->state);
		done = rests(s, deadline);
		if (done)
			*r = s->result;
		else
			give_up(s);
	}
	pthread_mutex_unlock(&s->lock);
	return done;
}

/* It is waited for no more; true if it was not just now. */
static bool take_off(struct settler *s, CUcontext ctx)
{
	bool left;

	pthread_mutex_lock(&s->step);
	for (unsigned i = 0; i < s->n; i++)
		if (s->ctx[i] == ctx)
			s->ctx[i] = NULL;
	left = !ctx || s->at != ctx;
	pthread_mutex_unlock(&s->step);
	return left;
}

void settle_pause(CUcontext ctx, int64_t deadline)
{
	for (int i = 0; i < SETTLES; i++) {
		pthread_mutex_lock(&settlers[i].lock);
		while (!take_off(&settlers[i], ctx) && now_ns() < deadline)
			sleep_ns(MS / 20);
	}
}

void settle_resume(void)
{
	for (int i = SETTLES - 1; i >= 0; i--)
		pthread_mutex_unlock(&settlers[i].lock);
}

/* The parent's threads are not the child's. */
void settle_fork_child(void)
{
	for (int i = 0; i < SETTLES; i++)
		settlers[i] = (struct settler){.lock = PTHREAD_MUTEX_INITIALIZER, .step = PTHREAD_MUTEX_INITIALIZER};
}
