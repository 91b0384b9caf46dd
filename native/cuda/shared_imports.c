/*
 * Memory of other processes of the container, mapped here. Its owner makes it, pays for it and moves it; here are the
 * addresses, which stay while it goes and comes. A name that was forged, or of what is no more, is an invalid handle.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "blocks.h"
#include "copy_streams.h"
#include "driver_symbols.h"
#include "ledger.h"
#include "log.h"
#include "peer_socket.h"
#include "shared_imports.h"

#define LARGEST ((uint64_t)1 << 44)

struct import {
	struct block *block;
	uint64_t id, secret, owner; /* owner: its pid and start time */
	pid_t pid;
	int row;        /* where it waits to count here, while its owner pays; -1: nowhere */
	int refs;       /* how often it was opened as a handle of 64 bytes */
	bool away;      /* let go of until its owner gives it again */
	bool orphan;    /* its owner ended while it was mapped here: it counts here */
	bool said;      /* that it cannot be mapped again for now */
	bool lost;      /* its owner ended while it was away */
	unsigned silent; /* the last round in which its owner did not answer */
	_Atomic bool gone; /* the program has no more of it, which the owner does not know yet; set under the lock of blocks.h */
	struct import *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the list; taken before the lock of blocks.h */
static struct import *imports;
static _Atomic int count, away, gone, orphans;

bool shared_is_name(const void *bytes, struct shared_name *name)
{
	memcpy(name, bytes, sizeof *name);
	return name->magic == SHARED_MAGIC;
}

static struct peer_request about(const struct import *i, enum peer_asks ask)
{
	return (struct peer_request){.ask = ask, .id = i->id, .secret = i->secret};
}

/* It no longer waits to count here: it does, or is no more. */
static void waits_no_more(struct import *i)
{
	if (i->row >= 0)
		container_import_end(session.container, i->row, i->block->device->index, i->block->size);
	i->row = -1;
}

/* Of those that are gone. */
static void take_off(struct import *i)
{
	struct import **p = &imports;

	waits_no_more(i);
	while (*p != i)
		p = &(*p)->next;
	*p = i->next;
	atomic_fetch_sub(&count, 1);
	atomic_fetch_sub(&gone, 1);
	free(i->block->chunk);
	free(i->block);
	free(i);
}

/* ---- asking for it ---- */

/*
 * A chunk of it as a handle of this process; 0: *r says why, or *when. An invalid handle is what its owner does not know,
 * or took along when it ended.
 */
static CUmemHandle fetch(const struct import *i, unsigned chunk, bool wanted, struct peer_answer *a, CUresult *r, enum shared_when *when)
{
	struct peer_request q = about(i, PEER_GIVE);
	CUmemHandle handle = 0;
	int fd;

	q.chunk = chunk;
	q.wanted = wanted;
	*when = SHARED_NOW;
	memset(a, 0, sizeof *a);
	if (!peer_exchange(i->pid, q, a, &fd)) {
		bool refused = errno == ECONNREFUSED, silent = refused || errno == ETIMEDOUT || errno == EAGAIN;
		bool dead = process_dead(i->owner) || (refused && peer_replaced(i->pid));
		*when = silent && !dead ? SHARED_SILENT : SHARED_NOW; /* it may be busy with another's */
		*r = dead ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
		return 0;
	}
	*r = a->says == PEER_UNKNOWN ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	*when = a->says == PEER_LATER ? SHARED_MOVES : SHARED_NOW;
	if (a->says == PEER_DONE && fd >= 0)
		*r = real_cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_POSIX_FD);
	if (a->says == PEER_REFUSED)
		log_error("process %d does not give its memory: %s", (int)i->pid, a->why);
	if (fd >= 0)
		close(fd);
	return *r == CUDA_SUCCESS ? handle : 0;
}

static struct device *device_at(int index)
{
	for (int i = 0; i < session.devices; i++)
		if (session.device[i].index == index)
			return &session.device[i];
	return NULL;
}

/* A block as its owner describes it; NULL if there is none such. */
static struct block *describe(const struct peer_answer *a, bool program, CUresult *r)
{
	struct block *b = calloc(1, sizeof *b);
	struct device *d = device_at(a->device);
	uint64_t chunks = a->chunk_size ? (a->size + a->chunk_size - 1) / a->chunk_size : 0;

	*r = !d ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_HANDLE;
	if (b && d && a->size && a->size <= LARGEST && chunks && chunks <= LARGEST / GiB && (!program || chunks == 1))
		b->chunk = calloc(chunks, sizeof *b->chunk);
	if (!b || !b->chunk) {
		free(b);
		return NULL;
	}
	b->device = d;
	b->prop = (CUmemProp){.type = CU_MEM_ALLOCATION_PINNED, .location = {CU_MEM_LOCATION_DEVICE, d->cu}, .handle_types = CU_MEM_HANDLE_POSIX_FD};
	b->size = a->size;
	b->chunks = (unsigned)chunks;
	b->program = program;
	for (unsigned i = 0; i < b->chunks; i++)
		b->chunk[i].size = i + 1 < b->chunks ? a->chunk_size : a->size - (chunks - 1) * a->chunk_size;
	real_cuCtxGetCurrent(&b->ctx);
	return b;
}

/* Unmaps and lets go of what is there of it. */
static void let_go(struct block *b)
{
	CUdeviceptr at = b->base;

	for (unsigned i = 0; i < b->chunks; at += b->chunk[i++].size)
		chunk_free(b, &b->chunk[i], at);
}

/* Fetches and maps what is not there of it; with the list's lock held, and not that of blocks.h, while others are asked. */
static CUresult map_missing(struct import *i, CUmemHandle first, bool wanted, enum shared_when *when)
{
	struct block *b = i->block;
	CUdeviceptr at = b->base;
	struct peer_answer a;
	CUresult r = CUDA_SUCCESS;

	*when = SHARED_NOW;
	for (unsigned n = 0; n < b->chunks && r == CUDA_SUCCESS; at += b->chunk[n++].size) {
		CUmemHandle handle = n ? 0 : first;
		if (b->chunk[n].handle)
			continue;
		if (!handle && !(handle = fetch(i, n, wanted, &a, &r, when)))
			break;
		blocks_lock();
		chunk_put(b, &b->chunk[n], at, handle, &r);
		blocks_unlock();
	}
	return r;
}

static void give_up(struct import *i)
{
	if (i->away) /* with its context: other calls wait */
		atomic_fetch_sub(&away, 1);
	i->away = false;
	blocks_lock();
	let_go(i->block);
	blocks_unlock();
	if (i->block->base)
		real_cuMemAddressFree(i->block->base, i->block->size);
	i->block->base = 0;
	i->gone = true; /* its owner may count us */
	atomic_fetch_add(&gone, 1);
}

/* Writes down that it counts here when its owner no longer pays; false if that is so already, and it may be given to others. */
static bool write_down(struct import *i, CUresult *r)
{
	i->row = container_import(session.container, atomic_load(&session.process), i->owner, i->block->device->index, i->block->size);
	if (i->row >= 0)
		return true;
	log_error("memory of process %d is not opened: that process has ended, or the container has no row left to count it in", (int)i->pid);
	free(i->block->chunk);
	free(i->block);
	*r = CUDA_ERROR_INVALID_HANDLE;
	return false;
}

static uint64_t owner_word(pid_t pid)
{
	uint64_t word = container_word(session.container, pid);

	return word ? word : process_word(pid);
}

static struct import *make(const struct shared_name *n, CUresult *r, enum shared_when *when)
{
	struct import *i = calloc(1, sizeof *i);
	struct peer_answer a;
	CUmemHandle first;

	*r = CUDA_ERROR_OUT_OF_MEMORY;
	if (!i)
		return NULL;
	*i = (struct import){.id = n->id, .secret = n->secret, .pid = (pid_t)n->pid, .owner = owner_word((pid_t)n->pid), .row = -1};
	first = fetch(i, 0, true, &a, r, when);
	i->block = first ? describe(&a, n->program, r) : NULL;
	if (!i->block || !write_down(i, r)) {
		if (first)
			real_cuMemRelease(first);
		if (a.says == PEER_DONE || a.says == PEER_REFUSED) /* its owner may have written us down */
			(void)peer_exchange(i->pid, about(i, PEER_DROP), &a, NULL);
		free(i);
		return NULL;
	}
	i->block->import = i;
	i->next = imports;
	imports = i;
	atomic_fetch_add(&count, 1);
	*r = n->program ? CUDA_SUCCESS : real_cuMemAddressReserve(&i->block->base, i->block->size, 0, 0, 0);
	if (*r == CUDA_SUCCESS)
		*r = map_missing(i, first, true, when);
	else
		real_cuMemRelease(first);
	if (*r == CUDA_SUCCESS)
		return i;
	give_up(i);
	return NULL;
}

/* One that was imported before, or is now; with the list's lock held. */
static struct import *find_or_make(const struct shared_name *n, CUresult *r, enum shared_when *when)
{
	struct import *i, *made;

	*when = SHARED_NOW;
	*r = CUDA_SUCCESS;
	for (i = imports; i && (i->gone || i->pid != (pid_t)n->pid || i->id != n->id || i->secret != n->secret); i = i->next)
		;
	if (i && i->block->program == n->program)
		return i;
	if (i || n->pid == 0 || n->pid >= 1 << 22 || n->program > 1) { /* its owner counts one kind of it */
		*r = CUDA_ERROR_INVALID_HANDLE;
		return NULL;
	}
	made = make(n, r, when);
	if (*r == CUDA_ERROR_NOT_FOUND)
		*r = CUDA_ERROR_INVALID_HANDLE;
	for (struct import *old = imports, *next; made && old; old = next) {
		next = old->next; /* its owner is to know no more than that it is had again */
		if (old != made && old->gone && old->owner == made->owner && old->secret == made->secret && old->id == made->id)
			take_off(old);
	}
	return made;
}

/* ---- handles of 64 bytes ---- */

/* One opening more of what lies at an address; false without memory to note it. */
static bool note_opened(struct import *i, CUdeviceptr ptr, uint64_t size)
{
	struct holding *h;

	ledger_lock();
	h = ledger_find(ptr, HOLD_SHARED);
	if (h)
		h->refs++;
	else if ((h = ledger_add(ptr, HOLD_SHARED, i->block->device, 0))) {
		h->own = i;
		h->link = size;
	}
	ledger_unlock();
	return h != NULL;
}

CUresult shared_open(const struct shared_name *n, CUdeviceptr *ptr, enum shared_when *when)
{
	struct import *i;
	CUresult r;

	*when = SHARED_NOW;
	if (n->program)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	i = find_or_make(n, &r, when);
	if (i && (n->size > i->block->size || n->offset > i->block->size - n->size || !n->size))
		r = CUDA_ERROR_INVALID_HANDLE;
	else if (i && !note_opened(i, i->block->base + n->offset, n->size))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (i && r == CUDA_SUCCESS) {
		if (!i->refs++) {
			blocks_lock();
			block_link(i->block);
			blocks_unlock();
		}
		*ptr = i->block->base + n->offset;
	} else if (i && !i->refs) {
		give_up(i);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

/* One opening less; the last one unmaps it. */
static void close_one(struct import *i)
{
	pthread_mutex_lock(&lock);
	if (--i->refs == 0) {
		blocks_lock();
		block_unlink(i->block);
		blocks_unlock();
		give_up(i);
	}
	pthread_mutex_unlock(&lock);
}

bool shared_close(CUdeviceptr ptr)
{
	struct import *i = NULL;
	struct holding *h;

	if (!shared_range(ptr, NULL, NULL))
		return false;
	context_wait_current(); /* nothing may use it any more */
	ledger_lock();
	h = ledger_find(ptr, HOLD_SHARED);
	if (h) {
		i = h->own;
		if (--h->refs == 0)
			ledger_drop(h);
	}
	ledger_unlock();
	if (i)
		close_one(i);
	return i != NULL;
}

struct range_search { CUdeviceptr ptr, base; uint64_t size; };

static void match_range(struct holding *h, void *arg)
{
	struct range_search *s = arg;

	if (h->kind == HOLD_SHARED && s->ptr - h->key < h->link) {
		s->base = h->key;
		s->size = h->link;
	}
}

bool shared_range(CUdeviceptr ptr, CUdeviceptr *base, size_t *size)
{
	struct range_search s = {.ptr = ptr};

	if (!atomic_load(&count))
		return false;
	ledger_lock();
	ledger_each(match_range, &s);
	ledger_unlock();
	if (base && s.size)
		*base = s.base;
	if (size && s.size)
		*size = s.size;
	return s.size != 0;
}

struct of_context { CUcontext ctx; CUdeviceptr ptr; };

static void match_context(struct holding *h, void *arg)
{
	struct of_context *c = arg;

	if (h->kind == HOLD_SHARED && h->ctx == c->ctx)
		c->ptr = h->key;
}

void shared_forget_context(CUcontext ctx)
{
	struct of_context c;

	do {
		c = (struct of_context){.ctx = ctx};
		ledger_lock();
		ledger_each(match_context, &c);
		ledger_unlock();
	} while (c.ptr && shared_close(c.ptr));
}

/* ---- the program's own virtual memory ---- */

CUresult shared_import(const struct shared_name *n, adopt_fn adopt, CUmemHandle *handle, enum shared_when *when)
{
	struct import *i;
	CUresult r;

	pthread_mutex_lock(&lock);
	i = find_or_make(n, &r, when);
	blocks_lock();
	if (i && i->gone) { /* given back just now: the owner still counts us */
		i = NULL;
		*when = SHARED_SILENT;
	}
	if (i && !i->block->refs && !i->block->link)
		block_link(i->block);
	if (i && !adopt(i->block, handle))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	blocks_unlock();
	pthread_mutex_unlock(&lock);
	return r;
}

void shared_import_name(const struct block *b, struct shared_name *n)
{
	const struct import *i = b->import;

	*n = (struct shared_name){.magic = SHARED_MAGIC, .id = i->id, .secret = i->secret, .pid = (uint32_t)i->pid, .program = b->program, .size = b->size};
}

void shared_import_gone(struct block *b)
{
	b->import->gone = true;
	atomic_fetch_add(&gone, 1);
}

/* ---- what happens to the owner ---- */

/* False if its owner lives and does not answer: the next time. */
static bool settle_gone(struct import *i)
{
	struct peer_answer a;

	if (!peer_exchange(i->pid, about(i, PEER_DROP), &a, NULL) && errno != ECONNREFUSED && !process_dead(i->owner))
		return false;
	if (i->orphan) {
		container_refund(session.container, atomic_load(&session.process), i->block->device->index, i->block->size);
		atomic_fetch_sub(&i->block->device->unseen, i->block->size);
		atomic_fetch_sub(&orphans, 1);
	}
	take_off(i);
	return true;
}

/* Memory that is only here now counts here, whether it fits or not. */
static void adopt_orphan(struct import *i)
{
	container_charge(session.container, atomic_load(&session.process), i->block->device->index, i->block->size, UINT64_MAX);
	waits_no_more(i);
	atomic_fetch_add(&i->block->device->unseen, i->block->size); /* the driver counts it where it was made */
	i->orphan = true;
	atomic_fetch_add(&orphans, 1);
}

/* What lost its owner: nobody is asked for that, so nobody can keep it waiting. */
static void adopt_orphans(void)
{
	int paid = -1; /* many are of one owner */

	for (struct import *i = imports; i; i = i->next) {
		if (i->row < 0 || i->row == paid || i->gone || i->away)
			continue;
		if (container_import_left(session.container, i->row))
			adopt_orphan(i);
		else
			paid = i->row;
	}
}

/* Tells the owners of what is gone. One that does not answer is asked once, and not for each that it has. */
static void settle_all_gone(void)
{
	static unsigned round;

	round++;
	for (struct import *i = imports, *next; i; i = next) {
		next = i->next;
		if (!i->gone || i->silent == round || settle_gone(i))
			continue;
		for (struct import *k = next; k; k = k->next)
			if (k->pid == i->pid)
				k->silent = round;
	}
}

static void look(bool owners)
{
	pthread_mutex_lock(&lock);
	if (owners)
		adopt_orphans();
	settle_all_gone();
	pthread_mutex_unlock(&lock);
}

void shared_imports_settle(void)
{
	if (atomic_load(&gone))
		look(false);
}

void shared_imports_refresh(void)
{
	if (atomic_load(&count))
		look(true);
}

const char *shared_imports_refusal(void)
{
	return atomic_load(&orphans) ? "memory of a process of this container that has ended" : NULL;
}

/* ---- it goes and comes with its owner ---- */

bool shared_imports_know(pid_t owner, uint64_t secret)
{
	struct import *i;

	pthread_mutex_lock(&lock);
	for (i = imports; i && (i->pid != owner || i->secret != secret); i = i->next)
		;
	pthread_mutex_unlock(&lock);
	return i != NULL;
}

static bool mapped_of(const struct import *i, pid_t owner, uint64_t secret)
{
	return i->pid == owner && i->secret == secret && !i->gone && !i->away && !i->lost;
}

bool shared_imports_of(pid_t owner, uint64_t secret)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct import *i = imports; i && !found; i = i->next)
		found = mapped_of(i, owner, secret);
	pthread_mutex_unlock(&lock);
	return found;
}

void shared_imports_leave(pid_t owner, uint64_t secret)
{
	pthread_mutex_lock(&lock);
	blocks_lock();
	for (struct import *i = imports; i; i = i->next) {
		if (!mapped_of(i, owner, secret))
			continue;
		block_note_access(i->block);
		let_go(i->block);
		i->away = true;
		atomic_fetch_add(&away, 1);
	}
	blocks_unlock();
	pthread_mutex_unlock(&lock);
}

bool shared_imports_away(void) { return atomic_load(&away) > 0; }

/* What its owner had alone when it ended is nowhere: whoever uses it meets an address without memory. */
static void lost(struct import *i)
{
	log_error("%llu MiB of process %d are lost: it ended, or denies them, while they were off the card", (unsigned long long)(i->block->size / MiB), (int)i->pid);
	i->away = false;
	i->lost = true;
	waits_no_more(i);
	atomic_fetch_sub(&away, 1);
}

bool shared_imports_return(bool wanted)
{
	enum shared_when when = SHARED_NOW;

	pthread_mutex_lock(&lock);
	for (struct import *i = imports; i && when == SHARED_NOW; i = i->next) {
		if (!i->away)
			continue;
		blocks_lock();
		real_cuCtxSetCurrent(block_context(i->block));
		blocks_unlock();
		CUresult r = map_missing(i, 0, wanted, &when);
		if (r == CUDA_SUCCESS) {
			i->away = false;
			atomic_fetch_sub(&away, 1);
			continue;
		}
		blocks_lock();
		let_go(i->block); /* it may move again before the rest of it comes */
		blocks_unlock();
		if (r == CUDA_ERROR_INVALID_HANDLE && when == SHARED_NOW) {
			lost(i);
		} else if (when == SHARED_NOW && !i->said) {
			i->said = true;
			log_error("memory of process %d cannot be mapped again (the driver answered %d): this process waits until it can", (int)i->pid, r);
		}
	}
	pthread_mutex_unlock(&lock);
	return atomic_load(&away) == 0;
}

/* The parent's memory is not the child's. */
void shared_imports_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	imports = NULL;
	atomic_store(&away, 0);
	atomic_store(&count, 0);
	atomic_store(&gone, 0);
	atomic_store(&orphans, 0);
}
