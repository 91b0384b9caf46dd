/* What this process holds of the cards, by pointer or handle, so that a free knows what to give back. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "driver_symbols.h"
#include "ledger.h"

#define BUCKETS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct holding *table[BUCKETS];

static unsigned bucket(uint64_t key, enum holding_kind kind)
{
	return (unsigned)(((key + (uint64_t)kind * 0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd) >> 40) % BUCKETS;
}

void ledger_lock(void) { pthread_mutex_lock(&lock); }
void ledger_unlock(void) { pthread_mutex_unlock(&lock); }

struct holding *ledger_add(uint64_t key, enum holding_kind kind, struct device *d, uint64_t bytes)
{
	struct holding *h = calloc(1, sizeof *h), **b = &table[bucket(key, kind)];

	if (!h)
		return NULL;
	*h = (struct holding){.key = key, .kind = kind, .device = d, .bytes = bytes, .refs = 1, .next = *b};
	if (real_cuCtxGetCurrent)
		real_cuCtxGetCurrent(&h->ctx);
	*b = h;
	return h;
}

struct holding *ledger_find(uint64_t key, enum holding_kind kind)
{
	for (struct holding *h = table[bucket(key, kind)]; h; h = h->next)
		if (h->key == key && h->kind == kind)
			return h;
	return NULL;
}

void ledger_drop(struct holding *h)
{
	for (struct holding **p = &table[bucket(h->key, h->kind)]; *p; p = &(*p)->next) {
		if (*p == h) {
			*p = h->next;
			free(h);
			return;
		}
	}
}

void ledger_each(holding_visit visit, void *arg)
{
	for (int i = 0; i < BUCKETS; i++)
		for (struct holding *h = table[i], *next; h; h = next) {
			next = h->next;
			visit(h, arg);
		}
}

/* In a forked child: the parent's holdings are not ours. */
static void ledger_reset(void)
{
	for (int i = 0; i < BUCKETS; i++)
		for (struct holding *h = table[i], *next; h; h = next) {
			next = h->next;
			free(h);
		}
	memset(table, 0, sizeof table);
}

/* step 0 before a fork, 1 after it in the parent, 2 after it in the child */
void ledger_fork(int step)
{
	if (step == 0)
		ledger_lock();
	else
		ledger_unlock();
	if (step == 2)
		ledger_reset();
}
