/* What a session has: objects by the client's handles, memory on the card, and the threads of the program. */
#include <stdlib.h>
#include "server.h"

#define MOST_OBJECTS ((uint64_t)1 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- objects ---- */

static struct table { void **real; uint64_t size, next; uint64_t *gone; uint64_t free; } tables[KINDS];
static _Atomic uint64_t contexts_gone; /* counts */
static struct { struct kernel **list; uint64_t size; } kernels[KINDS]; /* by function, and by kernel */

/* What the server names once and for all: the same for the same, and its number is never another's. */
static bool is_code(enum handle_kind kind) { return kind == KIND_function || kind == KIND_kernel; }

static bool grow(struct table *t, uint64_t index)
{
	uint64_t size = t->size ? t->size : 64;
	void **real;
	uint64_t *gone;

	if (index >= MOST_OBJECTS)
		return false;
	while (size <= index)
		size *= 2;
	if (size == t->size)
		return true;
	real = realloc(t->real, size * sizeof *real);
	if (real)
		t->real = real;
	gone = realloc(t->gone, size * sizeof *gone);
	if (gone)
		t->gone = gone;
	if (!real || !gone)
		return false;
	memset(real + t->size, 0, (size - t->size) * sizeof *real);
	t->size = size;
	return true;
}

static void **entry(enum handle_kind kind, uint64_t id)
{
	struct table *t = &tables[kind];
	return id >= FIRST_HANDLE && id - FIRST_HANDLE < t->size ? &t->real[id - FIRST_HANDLE] : NULL;
}

bool object_free(enum handle_kind kind, uint64_t id)
{
	pthread_mutex_lock(&lock);
	void **e = entry(kind, id);
	bool ok = id >= FIRST_HANDLE && id - FIRST_HANDLE < MOST_OBJECTS && (!e || !*e);
	pthread_mutex_unlock(&lock);
	return ok;
}

bool object_set(enum handle_kind kind, uint64_t id, void *real)
{
	pthread_mutex_lock(&lock);
	bool ok = grow(&tables[kind], id - FIRST_HANDLE);
	if (ok)
		*entry(kind, id) = real;
	pthread_mutex_unlock(&lock);
	return ok;
}

/* The handle of an object that the server names. */
uint64_t object_add(enum handle_kind kind, void *real)
{
	struct table *t = &tables[kind];
	uint64_t id = 0;

	pthread_mutex_lock(&lock);
	for (uint64_t i = 0; i < t->next && !id && (kind == KIND_context || is_code(kind)); i++)
		if (t->real[i] == real)
			id = FIRST_HANDLE + i;
	if (!id && t->free && !is_code(kind))
		id = t->gone[--t->free];
	else if (!id && grow(t, t->next))
		id = FIRST_HANDLE + t->next++;
	if (id)
		*entry(kind, id) = real;
	pthread_mutex_unlock(&lock);
	return id;
}

static void drop_variables(uint64_t owner);

static void drop_kernels(enum handle_kind kind, uint64_t owner)
{
	for (uint64_t i = 0; i < kernels[kind].size; i++)
		if (kernels[kind].list[i] && kernels[kind].list[i]->owner == owner) {
			free(kernels[kind].list[i]);
			kernels[kind].list[i] = NULL;
			tables[kind].real[i] = NULL;
		}
}

void object_drop(enum handle_kind kind, uint64_t id)
{
	struct table *t = &tables[kind];

	pthread_mutex_lock(&lock);
	void **e = entry(kind, id);
	if (e && *e) {
		*e = NULL;
		if (id - FIRST_HANDLE < t->next)
			t->gone[t->free++] = id;
		if (kind == KIND_module || kind == KIND_library) {
			uint64_t owner = kind == KIND_library ? LIBRARY | id : id;
			drop_kernels(KIND_function, owner);
			drop_kernels(KIND_kernel, owner);
			drop_variables(owner);
		}
		if (kind == KIND_context)
			atomic_fetch_add(&contexts_gone, 1);
	}
	pthread_mutex_unlock(&lock);
}

void kernel_set(enum handle_kind kind, uint64_t id, struct kernel *k)
{
	pthread_mutex_lock(&lock);
	uint64_t at = id - FIRST_HANDLE;
	if (at >= kernels[kind].size) {
		uint64_t size = tables[kind].size;
		struct kernel **more = realloc(kernels[kind].list, size * sizeof *more);
		if (more) {
			memset(more + kernels[kind].size, 0, (size - kernels[kind].size) * sizeof *more);
			kernels[kind].list = more;
			kernels[kind].size = size;
		}
	}
	if (at < kernels[kind].size && !kernels[kind].list[at])
		kernels[kind].list[at] = k;
	else
		free(k);
	pthread_mutex_unlock(&lock);
}

/* Only the thread that reads calls asks, and only it unloads what owns them. */
const struct kernel *kernel_of(enum handle_kind kind, uint64_t id)
{
	return id >= FIRST_HANDLE && id - FIRST_HANDLE < kernels[kind].size ? kernels[kind].list[id - FIRST_HANDLE] : NULL;
}

/* ---- the program's threads ---- */

#define STREAMS_OF_LANE 4
static struct lane_state { _Atomic uint64_t context; struct { uint64_t context; void *stream; } own[STREAMS_OF_LANE]; } lanes[MOST_LANES];

uint64_t lane_context(unsigned lane) { return lanes[lane].context; }
void lane_set_context(unsigned lane, uint64_t context) { lanes[lane].context = context; }

void lane_drop(unsigned lane)
{
	for (int i = 0; i < STREAMS_OF_LANE; i++)
		if (lanes[lane].own[i].stream && driver.cuStreamDestroy_v2)
			driver.cuStreamDestroy_v2(lanes[lane].own[i].stream);
	memset(lanes[lane].own, 0, sizeof lanes[lane].own);
	lanes[lane].context = 0;
}

/* Streams end with their context, whose number another one gets. */
void lanes_forget(uint64_t context)
{
	pthread_mutex_lock(&lock);
	for (int lane = 0; lane < MOST_LANES; lane++)
		for (int i = 0; i < STREAMS_OF_LANE; i++)
			if (lanes[lane].own[i].context == context) {
				lanes[lane].own[i].context = 0;
				lanes[lane].own[i].stream = NULL;
			}
	pthread_mutex_unlock(&lock);
}

bool lane_enter(unsigned lane)
{
	static __thread uint64_t entered, then;
	uint64_t wanted = lanes[lane].context, now = atomic_load(&contexts_gone);
	void *real = NULL;

	if (entered == wanted && then == now)
		return true;
	then = now;
	if (wanted) {
		pthread_mutex_lock(&lock);
		void **e = entry(KIND_context, wanted);
		real = e ? *e : NULL;
		pthread_mutex_unlock(&lock);
	}
	if (driver.cuCtxSetCurrent(real) != CUDA_SUCCESS)
		return false;
	entered = real ? wanted : 0;
	return true;
}

/* The stream that a thread of the program calls its own, in its context. */
static bool stream_of_lane(unsigned lane, void **real)
{
	struct lane_state *l = &lanes[lane];
	uint64_t context = l->context;
	bool found = false;

	pthread_mutex_lock(&lock);
	int at = -1;
	for (int i = STREAMS_OF_LANE - 1; i >= 0 && !found; i--) {
		found = l->own[i].stream && l->own[i].context == context;
		if (found || !l->own[i].stream)
			at = i;
	}
	if (!found && at >= 0 && driver.cuStreamCreate && driver.cuStreamCreate(&l->own[at].stream, 0) == CUDA_SUCCESS) {
		l->own[at].context = context;
		found = true;
	}
	if (found)
		*real = l->own[at].stream;
	pthread_mutex_unlock(&lock);
	return found;
}

bool object_find(struct served *s, enum handle_kind kind, uint64_t id, void **real)
{
	*real = NULL;
	if (kind == KIND_context && !id)
		return true;
	if (kind == KIND_stream && id < CU_STREAM_PER_THREAD) {
		*real = (void *)(uintptr_t)id;
		return true;
	}
	if (kind == KIND_stream && id == CU_STREAM_PER_THREAD)
		return stream_of_lane(s->lane, real);
	pthread_mutex_lock(&lock);
	void **e = entry(kind, id);
	*real = e ? *e : NULL;
	pthread_mutex_unlock(&lock);
	return *real != NULL;
}

/* ---- memory: sorted by address ---- */

static struct range { uint64_t at, bytes, context, owner; } *ranges; /* owner: whose variable it is, or 0 */
static size_t ranges_count, ranges_most;

/* The first range that begins after an address. */
static size_t after(uint64_t at)
{
	size_t low = 0, high = ranges_count;

	while (low < high) {
		size_t mid = (low + high) / 2;
		if (ranges[mid].at <= at)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void memory_add(struct served *s, CUdeviceptr ptr, uint64_t bytes) { memory_add_variable(s, 0, ptr, bytes); }

void memory_add_variable(struct served *s, uint64_t owner, CUdeviceptr ptr, uint64_t bytes)
{
	if (!ptr || bytes > UINT64_MAX - ptr)
		return;
	pthread_mutex_lock(&lock);
	if (ranges_count == ranges_most) {
		size_t more = ranges_most ? 2 * ranges_most : 256;
		struct range *list = realloc(ranges, more * sizeof *list);
		if (list) {
			ranges = list;
			ranges_most = more;
		}
	}
	size_t i = after(ptr);
	if (i && ranges[i - 1].at == ptr) {
		ranges[i - 1].bytes = bytes; /* asked for again */
	} else if (ranges_count < ranges_most) {
		memmove(ranges + i + 1, ranges + i, (ranges_count - i) * sizeof *ranges);
		ranges[i] = (struct range){ptr, bytes, lane_context(s->lane), owner};
		ranges_count++;
	}
	pthread_mutex_unlock(&lock);
}

void memory_drop(CUdeviceptr ptr)
{
	pthread_mutex_lock(&lock);
	size_t i = after(ptr);
	if (i && ranges[i - 1].at == ptr) {
		memmove(ranges + i - 1, ranges + i, (ranges_count - i) * sizeof *ranges);
		ranges_count--;
	}
	pthread_mutex_unlock(&lock);
}

bool memory_begins(CUdeviceptr ptr)
{
	pthread_mutex_lock(&lock);
	size_t i = after(ptr);
	bool ok = !ptr || (i && ranges[i - 1].at == ptr);
	pthread_mutex_unlock(&lock);
	return ok;
}

bool memory_owns(CUdeviceptr ptr, uint64_t n, unsigned unit)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(n, (uint64_t)unit, &bytes))
		return false;
	pthread_mutex_lock(&lock);
	size_t i = after(ptr);
	bool ok = i && ptr - ranges[i - 1].at <= ranges[i - 1].bytes && bytes <= ranges[i - 1].bytes - (ptr - ranges[i - 1].at);
	pthread_mutex_unlock(&lock);
	return ok;
}

/* From the first byte of the first row to the last of the last; rows follow each other, so that there are no more than bytes. */
bool memory_owns_rows(CUdeviceptr ptr, uint64_t pitch, uint64_t width, uint64_t height, unsigned unit)
{
	uint64_t row, before;

	if (!height)
		return memory_owns(ptr, 0, 1);
	return !__builtin_mul_overflow(width, (uint64_t)unit, &row) && (height == 1 || (pitch && pitch >= row)) &&
		!__builtin_mul_overflow(pitch, height - 1, &before) && !__builtin_add_overflow(row, before, &row) && memory_owns(ptr, row, 1);
}

void memory_forget(uint64_t context)
{
	size_t left = 0;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < ranges_count; i++)
		if (ranges[i].context != context)
			ranges[left++] = ranges[i];
	ranges_count = left;
	pthread_mutex_unlock(&lock);
}

/* Under the lock. */
static void drop_variables(uint64_t owner)
{
	size_t left = 0;

	for (size_t i = 0; i < ranges_count; i++)
		if (ranges[i].owner != owner)
			ranges[left++] = ranges[i];
	ranges_count = left;
}
