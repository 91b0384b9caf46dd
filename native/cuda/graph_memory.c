/*
 * Memory of graphs that can be moved. The driver knows how long a graph, its clones and its instances need a piece: each
 * piece is a user object that the graph retains, and the driver says when nobody has it any more and nothing runs with it.
 * A piece that a launch has allocated, and that no graph frees, stays beyond that until the program frees it, as the driver
 * has it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "copy_streams.h"
#include "driver_symbols.h"
#include "graph_memory.h"
#include "ledger.h"
#include "movable_memory.h"
#include "streams.h"

struct piece {
	CUdeviceptr ptr;      /* 0 once its context is gone */
	uint64_t size, id;    /* addresses come again, numbers do not */
	CUcontext ctx;
	CUgraph graph;        /* in which it is allocated */
	bool retained;        /* some graph or instance has it */
	bool live;            /* a launch has allocated it, and nobody has freed it */
	bool freed;           /* in some graph */
	bool over;            /* it is to be given back */
	bool busy;            /* what was launched before it was freed may still use it: nobody waited for that */
	CUstream stream;      /* on which that was captured: the same one may have it again */
	struct piece *next, *reported; /* the second: in the list of those that the driver has said it of */
};

/* What a launch allocates for others, and what it frees for others. */
struct set {
	bool auto_free;
	unsigned n;
	struct { CUdeviceptr ptr; uint64_t id; bool frees; } of[];
};

struct node { CUgraph graph; int type; CUmemAllocNode params; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct piece *) unretained; /* the driver says so on a thread of its own, at any time */
static struct piece *retired;              /* to be given back; the program may not free them once more */
static struct piece *pieces;               /* those that graphs have or that are live */
static uint64_t numbers;
static _Atomic unsigned sets, nodes;       /* in the ledger */

/* ---- sets, under the lock ---- */

static struct holding *find(void *key, enum holding_kind kind)
{
	struct holding *h;

	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)key, kind);
	ledger_unlock();
	return h;
}

static struct set *set_of(void *key, enum holding_kind kind)
{
	struct holding *h = atomic_load(&sets) ? find(key, kind) : NULL;
	return h ? h->own : NULL;
}

static void set_drop(void *key, enum holding_kind kind)
{
	struct holding *h = atomic_load(&sets) ? find(key, kind) : NULL;

	if (!h)
		return;
	free(h->own);
	ledger_lock();
	ledger_drop(h);
	ledger_unlock();
	atomic_fetch_sub(&sets, 1);
}

static size_t set_size(unsigned n) { return sizeof(struct set) + n * sizeof ((struct set *)0)->of[0]; }

static bool set_put(void *key, enum holding_kind kind, struct set *s)
{
	struct holding *h = find(key, kind);

	if (h) {
		h->own = s;
		return true;
	}
	ledger_lock();
	h = ledger_add((uint64_t)(uintptr_t)key, kind, &session.device[0], 0);
	if (h)
		h->own = s;
	ledger_unlock();
	if (h)
		atomic_fetch_add(&sets, 1);
	return h != NULL;
}

static bool set_add(CUgraph graph, const struct piece *p, bool frees)
{
	struct set *s = set_of(graph, HOLD_GRAPH_SET), *more = realloc(s, set_size((s ? s->n : 0) + 1));

	if (!more)
		return false;
	if (!s)
		more->n = 0, more->auto_free = false;
	more->of[more->n].ptr = p->ptr;
	more->of[more->n].id = p->id;
	more->of[more->n++].frees = frees;
	if (set_put(graph, HOLD_GRAPH_SET, more))
		return true;
	free(more);
	return false;
}

static void set_remove(CUgraph graph, const struct piece *p)
{
	struct set *s = set_of(graph, HOLD_GRAPH_SET);

	for (unsigned i = 0; s && i < s->n; i++)
		if (s->of[i].id == p->id)
			s->of[i--] = s->of[--s->n];
}

static void set_copy(CUgraph from, void *to, enum holding_kind kind, bool auto_free)
{
	struct set *s = set_of(from, HOLD_GRAPH_SET), *copy;

	set_drop(to, kind);
	if (!s || !s->n || !(copy = malloc(set_size(s->n))))
		return;
	copy->n = s->n;
	copy->auto_free = auto_free;
	for (unsigned i = 0; i < s->n; i++)
		copy->of[i] = s->of[i];
	if (!set_put(to, kind, copy))
		free(copy);
}

/* ---- pieces, under the lock ---- */

static struct piece *piece_at(CUdeviceptr ptr)
{
	struct holding *h;

	ledger_lock();
	h = ledger_find(ptr, HOLD_GRAPHED);
	ledger_unlock();
	return h ? h->own : NULL;
}

static struct piece *piece_of(CUdeviceptr ptr, uint64_t id)
{
	struct piece *p = piece_at(ptr);
	return p && p->id == id ? p : NULL;
}

static void forget_address(struct piece *p)
{
	struct holding *h;

	ledger_lock();
	h = p->ptr ? ledger_find(p->ptr, HOLD_GRAPHED) : NULL;
	if (h)
		ledger_drop(h);
	ledger_unlock();
}

static void retire_if_unused(struct piece *p)
{
	struct piece **at;

	if (p->retained || p->live || p->over)
		return;
	p->over = true;
	for (at = &pieces; *at != p; at = &(*at)->next)
		;
	*at = p->next;
	p->next = retired;
	retired = p;
}

/* On a thread of the driver, where no call of the driver is allowed, and where it may come while our lock is held. */
static void on_unretained(void *of)
{
	struct piece *p = of, *first = atomic_load(&unretained);

	do {
		p->reported = first;
	} while (!atomic_compare_exchange_weak(&unretained, &first, p));
}

/* ---- */

void graph_memory_settle(void)
{
	struct piece *gone, *next;

	if (!captures_hold_off())
		return; /* to wait for a context would spoil the capture */
	pthread_mutex_lock(&lock);
	for (struct piece *p = atomic_exchange(&unretained, NULL); p; p = next) {
		next = p->reported;
		p->retained = false;
		retire_if_unused(p);
	}
	gone = retired;
	retired = NULL;
	for (struct piece *p = gone; p; p = p->next)
		forget_address(p);
	pthread_mutex_unlock(&lock);
	for (; gone; gone = next) {
		struct holding *h = gone->ptr ? find((void *)(uintptr_t)gone->ptr, HOLD_OWN) : NULL;
		next = gone->next;
		if (h && gone->busy)
			context_wait(gone->ctx);
		if (h)
			movable_drop(h);
		free(gone);
	}
	captures_let_begin();
}

/* What was freed on a stream is there again for what is captured on it later: it comes after. */
static struct piece *take_again(CUgraph graph, CUstream stream, uint64_t bytes)
{
	struct piece *best = NULL;

	for (struct piece *p = pieces; p && stream; p = p->next)
		if (p->ptr && p->graph == graph && p->retained && p->freed && p->stream == stream && p->size >= bytes && p->size / 2 <= bytes && (!best || p->size < best->size))
			best = p;
	return best;
}

/* Retained by the graph from here on, also where something fails below: it goes when the driver says so. */
static struct piece *piece_make(struct device *d, CUgraph graph, uint64_t bytes)
{
	struct relaxed relaxed = capture_relax();
	struct piece *p = calloc(1, sizeof *p);
	CUuserObject object;
	bool card_full, made = p && movable_alloc(d, &p->ptr, bytes, &card_full) == CUDA_SUCCESS;

	if (made && real_cuUserObjectCreate(&object, p, on_unretained, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS) {
		movable_drop(find((void *)(uintptr_t)p->ptr, HOLD_OWN));
		made = false;
	}
	capture_unrelax(relaxed);
	if (!made) {
		free(p);
		return NULL;
	}
	p->size = bytes;
	p->retained = true;
	real_cuCtxGetCurrent(&p->ctx);
	pthread_mutex_lock(&lock);
	p->id = ++numbers;
	p->next = pieces;
	pieces = p;
	pthread_mutex_unlock(&lock);
	if (real_cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS)
		return p;
	real_cuUserObjectRelease(object, 1);
	return NULL;
}

static bool note(struct piece *p)
{
	struct holding *h;

	ledger_lock();
	h = ledger_add(p->ptr, HOLD_GRAPHED, &session.device[0], 0);
	if (h)
		h->own = p;
	ledger_unlock();
	return h != NULL;
}

bool graph_alloc(struct device *d, CUgraph graph, CUstream stream, uint64_t bytes, CUdeviceptr *ptr)
{
	struct piece *p;
	bool ok = false;

	if (!bytes || !graph || !real_cuUserObjectCreate || !real_cuUserObjectRelease || !real_cuGraphRetainUserObject || find(graph, HOLD_BODY))
		return false;
	graph_memory_settle();
	pthread_mutex_lock(&lock);
	p = take_again(graph, stream, bytes);
	if (p)
		ok = set_add(graph, p, false);
	if (ok) {
		p->freed = false;
		p->stream = NULL;
	}
	pthread_mutex_unlock(&lock);
	if (!p && (p = piece_make(d, graph, bytes))) {
		pthread_mutex_lock(&lock);
		p->graph = graph;
		ok = note(p) && set_add(graph, p, false);
		pthread_mutex_unlock(&lock);
	}
	if (ok)
		*ptr = p->ptr;
	return ok;
}

/* In one graph alone, and there once. */
bool graph_free(CUdeviceptr ptr, CUgraph graph, CUstream stream, CUresult *r)
{
	struct piece *p;

	pthread_mutex_lock(&lock);
	p = piece_at(ptr);
	if (p) {
		*r = p->freed ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
		if (!p->freed && p->graph == graph) {
			set_remove(graph, p);
			p->stream = stream;
			p->freed = true;
		} else if (!p->freed) {
			*r = set_add(graph, p, true) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
			p->freed = *r == CUDA_SUCCESS;
		}
	}
	pthread_mutex_unlock(&lock);
	return p != NULL;
}

bool graph_memory_free(CUdeviceptr ptr, CUresult *r)
{
	struct piece *p;

	pthread_mutex_lock(&lock);
	p = piece_at(ptr);
	if (p) {
		*r = p->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
		p->live = false;
		p->busy = true;
		retire_if_unused(p);
	}
	pthread_mutex_unlock(&lock);
	if (p)
		graph_memory_settle();
	return p != NULL;
}

bool graph_memory_owns(CUdeviceptr ptr)
{
	bool ours;

	pthread_mutex_lock(&lock);
	ours = piece_at(ptr) != NULL;
	pthread_mutex_unlock(&lock);
	return ours;
}

CUgraph graph_of_capture(CUstream stream)
{
	int status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUgraph graph = NULL;

	if (!real_cuStreamGetCaptureInfo_v2 || real_cuStreamGetCaptureInfo_v2(stream, &status, NULL, &graph, NULL, NULL) != CUDA_SUCCESS)
		return NULL;
	return status == CU_STREAM_CAPTURE_STATUS_NONE ? NULL : graph;
}

void graph_stream_reordered(CUstream stream)
{
	pthread_mutex_lock(&lock);
	for (struct piece *p = pieces; p; p = p->next)
		if (p->freed && p->retained && p->stream == stream)
			p->stream = NULL;
	pthread_mutex_unlock(&lock);
}

void graph_capture_ended(CUgraph graph)
{
	pthread_mutex_lock(&lock);
	for (struct piece *p = pieces; p; p = p->next)
		if (p->graph == graph)
			p->stream = NULL;
	pthread_mutex_unlock(&lock);
}

/* ---- graphs and their instances ---- */

void graph_cloned(CUgraph graph, CUgraph clone)
{
	pthread_mutex_lock(&lock);
	set_copy(graph, clone, HOLD_GRAPH_SET, false);
	pthread_mutex_unlock(&lock);
}

void graph_made_exec(CUgraph graph, CUgraphExec exec, bool auto_free)
{
	pthread_mutex_lock(&lock);
	set_copy(graph, exec, HOLD_EXEC_SET, auto_free);
	pthread_mutex_unlock(&lock);
}

void graph_updated_exec(CUgraph graph, CUgraphExec exec)
{
	struct set *s;

	pthread_mutex_lock(&lock);
	s = set_of(exec, HOLD_EXEC_SET);
	set_copy(graph, exec, HOLD_EXEC_SET, s && s->auto_free);
	pthread_mutex_unlock(&lock);
}

static void drop_node_of(struct holding *h, void *graph)
{
	if ((h->kind == HOLD_NODE && ((struct node *)h->own)->graph == graph) || (h->kind == HOLD_BODY && h->key == (uint64_t)(uintptr_t)graph)) {
		free(h->own);
		ledger_drop(h);
		atomic_fetch_sub(&nodes, 1);
	}
}

/* Its pieces are those of its instances from now on, if it has any; a new graph may have its handle. */
void graph_gone(CUgraph graph)
{
	pthread_mutex_lock(&lock);
	set_drop(graph, HOLD_GRAPH_SET);
	for (struct piece *p = pieces; p; p = p->next)
		if (p->graph == graph)
			p->graph = NULL;
	if (atomic_load(&nodes)) {
		ledger_lock();
		ledger_each(drop_node_of, graph);
		ledger_unlock();
	}
	pthread_mutex_unlock(&lock);
}

void graph_exec_gone(CUgraphExec exec)
{
	pthread_mutex_lock(&lock);
	set_drop(exec, HOLD_EXEC_SET);
	pthread_mutex_unlock(&lock);
}

bool graph_may_launch(CUgraphExec exec)
{
	bool may = true;
	struct set *s;
	struct piece *p;

	if (!atomic_load_explicit(&sets, memory_order_relaxed))
		return true;
	pthread_mutex_lock(&lock);
	s = set_of(exec, HOLD_EXEC_SET);
	for (unsigned i = 0; s && i < s->n && may; i++) {
		p = s->of[i].frees || s->auto_free ? NULL : piece_of(s->of[i].ptr, s->of[i].id);
		may = !p || !p->live;
	}
	pthread_mutex_unlock(&lock);
	return may;
}

void graph_launched(CUgraphExec exec)
{
	struct set *s;

	if (!atomic_load_explicit(&sets, memory_order_relaxed))
		return;
	pthread_mutex_lock(&lock);
	s = set_of(exec, HOLD_EXEC_SET);
	for (unsigned i = 0; s && i < s->n; i++) {
		struct piece *p = piece_of(s->of[i].ptr, s->of[i].id);
		if (p) {
			p->live = !s->of[i].frees;
			p->busy = true;
			retire_if_unused(p);
		}
	}
	pthread_mutex_unlock(&lock);
}

static bool note_own(void *key, enum holding_kind kind, void *own)
{
	struct holding *h;

	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)key, kind);
	if (!h && (h = ledger_add((uint64_t)(uintptr_t)key, kind, &session.device[0], 0)))
		atomic_fetch_add(&nodes, 1);
	if (h) {
		free(h->own);
		h->own = own;
	}
	ledger_unlock();
	return h != NULL;
}

void graph_is_body(CUgraph graph) { note_own(graph, HOLD_BODY, NULL); }

void graph_note_node(CUgraphNode node, CUgraph graph, int type, const CUmemAllocNode *params)
{
	struct node *n = calloc(1, sizeof *n);

	if (!n)
		return;
	*n = (struct node){graph, type, *params};
	n->params.access = NULL;
	n->params.access_count = 0;
	if (!note_own(node, HOLD_NODE, n))
		free(n);
}

bool graph_node_params(CUgraphNode node, int *type, CUmemAllocNode *params)
{
	struct holding *h;
	struct node *n;

	ledger_lock();
	h = ledger_find((uint64_t)(uintptr_t)node, HOLD_NODE);
	n = h ? h->own : NULL;
	if (n) {
		*type = n->type;
		*params = n->params;
	}
	ledger_unlock();
	return n != NULL;
}

/* ---- ends ---- */

/* The memory goes with its context like any other of ours; the driver tells of the pieces when their graphs go. */
void graph_memory_forget_context(CUcontext ctx)
{
	struct piece *next;

	pthread_mutex_lock(&lock);
	for (struct piece *p = pieces; p; p = next) {
		next = p->next;
		if (p->ctx != ctx)
			continue;
		forget_address(p);
		p->ptr = 0;
		p->live = false;
		retire_if_unused(p);
	}
	for (struct piece *p = retired; p; p = p->next)
		if (p->ctx == ctx) {
			forget_address(p);
			p->ptr = 0;
		}
	pthread_mutex_unlock(&lock);
}

void graph_memory_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	atomic_store(&unretained, NULL);
	atomic_store(&sets, 0);
	atomic_store(&nodes, 0);
	pieces = retired = NULL;
}
