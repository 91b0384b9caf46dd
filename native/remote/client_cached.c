/*
 * Answers that cannot change, asked for once. Nothing says that a place is free: another answer may take it, and the first is
 * asked for again. An answer is retained only if nothing was forgotten while it was on its way.
 */
#include <stdlib.h>
#include "client_parts.h"

#define PLACES 1024

struct cached {
	unsigned call;
	uint32_t args, answer;         /* bytes of both, one after the other */
	unsigned char bytes[];
};
static struct { pthread_mutex_t lock; struct cached *place[PLACES]; uint64_t forgotten; } all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Which of NVML's calls the table says are cached. */
static bool nvml_is_cached(unsigned call)
{
	switch (call) {
#define IF_cached(symbol) case CALL_##symbol: return true;
#define IF_block(symbol)
#define IF_own(symbol)
#define IF_local(symbol)
#define IF(symbol, mode) IF_##mode(symbol)
	EACH_NVML(IF)
	}
	return false;
}

static struct cached **place_of(unsigned call, const unsigned char *args, size_t size)
{
	uint64_t hash = 0xcbf29ce484222325 ^ call;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ args[i]) * 0x100000001b3;
	return &all.place[(hash ^ hash >> 32) % PLACES];
}

/* Takes an answer that is there; if none is, says as of when. */
static bool known(unsigned call, const void *args, size_t size, void *into, size_t expect, uint64_t *forgotten)
{
	pthread_mutex_lock(&all.lock);
	const struct cached *c = *place_of(call, args, size);
	bool found = c && c->call == call && c->args == size && c->answer == expect && (!size || !memcmp(c->bytes, args, size));
	if (found)
		memcpy(into, c->bytes + size, expect);
	*forgotten = all.forgotten;
	pthread_mutex_unlock(&all.lock);
	return found;
}

static void retain(unsigned call, const void *args, size_t size, const void *answer, size_t expect, uint64_t forgotten)
{
	struct cached *c = malloc(sizeof *c + size + expect);

	if (!c)
		return;
	*c = (struct cached){call, (uint32_t)size, (uint32_t)expect};
	if (size)
		memcpy(c->bytes, args, size);
	memcpy(c->bytes + size, answer, expect);
	pthread_mutex_lock(&all.lock);
	if (forgotten == all.forgotten) {
		struct cached **place = place_of(call, args, size), *was = *place;
		*place = c;
		c = was;
	}
	pthread_mutex_unlock(&all.lock);
	free(c);
}

CUresult call_cached(unsigned call, const void *args, size_t size, void *into, size_t expect)
{
	uint64_t forgotten;
	int32_t refused = 0;
	CUresult r;

	if (!client_ready())
		return call_sync(call, args, size, into, expect);
	if (known(call, args, size, into, expect, &forgotten))
		return CUDA_SUCCESS;
	r = call_sync(call, args, size, into, expect);
	if (r == CUDA_SUCCESS && nvml_is_cached(call))
		memcpy(&refused, into, sizeof refused); /* the answer begins with what NVML says of it */
	if (r == CUDA_SUCCESS && !refused)
		retain(call, args, size, into, expect, forgotten);
	return r;
}

CUresult call_nvml(unsigned call, const void *args, size_t size, void *into, size_t expect)
{
	return nvml_is_cached(call) ? call_cached(call, args, size, into, expect) : call_sync(call, args, size, into, expect);
}

void cached_forget(void)
{
	pthread_mutex_lock(&all.lock);
	all.forgotten++;
	for (int i = 0; i < PLACES; i++) {
		free(all.place[i]);
		all.place[i] = NULL;
	}
	pthread_mutex_unlock(&all.lock);
}

/* Another thread may have been about to change it when the child was made: what is there is left as it is. */
void cached_forked(void)
{
	pthread_mutex_init(&all.lock, NULL);
	all.forgotten++;
	memset(all.place, 0, sizeof all.place);
}
