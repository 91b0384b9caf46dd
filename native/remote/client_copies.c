/*
 * Copies between the program's memory and the card's. A small one to the card is a call that nobody waits for. Others go in
 * pieces, several of which are under way at once; a large one over several connections beside that of the calls.
 */
#include <unistd.h>
#include "client_parts.h"
#include "system.h"

#define SMALL ((size_t)64 << 10)  /* is copied, and the caller goes on */
#define UNDER_WAY 4

static CUresult write_small(struct wire_copy *c, const void *from, size_t bytes)
{
	unsigned char all[sizeof *c + SMALL];

	c->bytes = (uint32_t)bytes;
	memcpy(all, c, sizeof *c);
	memcpy(all + sizeof *c, from, bytes);
	return call_async(CALL_write, all, sizeof *c + bytes);
}

/* Sends the pieces of a copy and waits for their answers, the oldest first. */
static CUresult copy(unsigned call, struct wire_copy *c, char *host, size_t bytes)
{
	struct slot slots[UNDER_WAY] = {{0}};
	size_t sent = 0, done = 0, pieces = (bytes + CHUNK - 1) / CHUNK;
	CUresult r = CUDA_SUCCESS, got;

	while (done < pieces && (r == CUDA_SUCCESS || done < sent)) {
		if (r == CUDA_SUCCESS && sent < pieces && sent - done < UNDER_WAY) {
			struct slot *s = &slots[sent % UNDER_WAY];
			struct wire_copy piece = *c;
			size_t at = sent * CHUNK;
			piece.address += at;
			piece.bytes = (uint32_t)(bytes - at < CHUNK ? bytes - at : CHUNK);
			*s = (struct slot){0};
			if (call == CALL_read) {
				s->into = host + at;
				s->size = piece.bytes;
			}
			r = slot_send(s, call, &piece, sizeof piece, call == CALL_read ? NULL : host + at, call == CALL_read ? 0 : piece.bytes);
			sent += r == CUDA_SUCCESS;
			continue;
		}
		got = slot_wait(&slots[done++ % UNDER_WAY]);
		r = r == CUDA_SUCCESS ? got : r;
	}
	return r;
}

/* ---- over several connections ---- */

#ifdef ELASTICGPU_TESTING
#define WIDE ((size_t)8 << 20) /* so that tests need not copy much */
#else
#define WIDE ((size_t)32 << 20)
#endif
#ifndef CONNECTIONS /* another number is built to be measured */
#define CONNECTIONS 8
#endif
#define AHEAD 2 /* pieces of a connection that are under way: while one is copied, the next is sent */

static struct { pthread_mutex_t lock; int fd[CONNECTIONS]; } wide = {PTHREAD_MUTEX_INITIALIZER, {[0 ... CONNECTIONS - 1] = -1}};

void copies_forked(void)
{
	pthread_mutex_init(&wide.lock, NULL);
	for (int i = 0; i < CONNECTIONS; i++) {
		if (wide.fd[i] >= 0)
			close(wide.fd[i]);
		wide.fd[i] = -1;
	}
}

/* A piece that was on its way must not be copied after what follows. */
static void end_copies(CUresult *result)
{
	CUresult r;

	for (int i = 0; i < CONNECTIONS; i++) {
		if (wide.fd[i] >= 0)
			close(wide.fd[i]);
		wide.fd[i] = -1;
	}
	r = call_sync(CALL_end_copies, NULL, 0, NULL, 0);
	if (*result == CUDA_SUCCESS)
		*result = r;
}

struct wide_copy {
	struct wire_piece piece;
	char *host;
	size_t bytes, pieces;
	_Atomic size_t next;
	_Atomic int result, broken;   /* an error of the driver's; connections that broke */
	_Atomic unsigned running;     /* futex */
};

static uint32_t piece_bytes(const struct wide_copy *w, size_t n)
{
	size_t left = w->bytes - n * CHUNK;
	return (uint32_t)(left < CHUNK ? left : CHUNK);
}

/* Sends a piece over a connection; false if that broke. */
static bool send_piece(const struct wide_copy *w, int fd, size_t n)
{
	struct wire_piece p = w->piece;

	p.copy.address += n * CHUNK;
	p.copy.bytes = piece_bytes(w, n);
	return socket_write(fd, &p, sizeof p) && (p.call == CALL_read || socket_write(fd, w->host + n * CHUNK, p.copy.bytes));
}

/* Takes the answer to a piece. */
static bool receive_piece(struct wide_copy *w, int fd, size_t n)
{
	int none = CUDA_SUCCESS;
	struct answer a;

	if (!socket_read(fd, &a, sizeof a))
		return false;
	if (a.result != CUDA_SUCCESS)
		atomic_compare_exchange_strong(&w->result, &none, a.result);
	return a.result != CUDA_SUCCESS || w->piece.call != CALL_read || socket_read(fd, w->host + n * CHUNK, piece_bytes(w, n));
}

struct carrier { struct wide_copy *w; int *fd; };

/* The next piece that nobody has begun; false if there is none, or something went wrong. */
static bool next_piece(struct wide_copy *w, size_t *n)
{
	return atomic_load(&w->result) == CUDA_SUCCESS && !atomic_load(&w->broken) && (*n = atomic_fetch_add(&w->next, 1)) < w->pieces;
}

/* What was begun is brought to its end, also where something went wrong elsewhere: the connection is used again. */
static void carry_pieces(const struct carrier *c)
{
	struct wide_copy *w = c->w;
	size_t under_way[AHEAD], sent = 0, done = 0, n;
	bool ok = true;

	do {
		while (ok && sent - done < AHEAD && next_piece(w, &n)) {
			ok = send_piece(w, *c->fd, n);
			under_way[sent++ % AHEAD] = n;
		}
		if (ok && done < sent)
			ok = receive_piece(w, *c->fd, under_way[done++ % AHEAD]);
	} while (ok && done < sent);
	if (!ok) {
		close(*c->fd);
		*c->fd = -1;
		atomic_fetch_add(&w->broken, 1);
	}
}

static void *carry_beside(void *arg)
{
	struct wide_copy *w = ((struct carrier *)arg)->w;

	carry_pieces(arg);
	if (atomic_fetch_sub(&w->running, 1) == 1)
		futex_wake(&w->running);
	return NULL;
}

/* Copies over several connections, after all calls that were made before; false if that is not to be had now. */
static bool copy_wide(unsigned call, const struct wire_copy *c, char *host, size_t bytes, CUresult *result)
{
	struct wide_copy w = {.piece = {.call = call, .lane = client_lane(), .copy = *c}, .host = host, .bytes = bytes, .pieces = (bytes + CHUNK - 1) / CHUNK};
	struct carrier carriers[CONNECTIONS];
	int count = 0;
	unsigned left;

	if (bytes < WIDE || pthread_mutex_trylock(&wide.lock) != 0)
		return false;
	*result = call_sync(CALL_fence, NULL, 0, NULL, 0);
	for (int i = 0; *result == CUDA_SUCCESS && i < CONNECTIONS; i++) {
		if (wide.fd[i] < 0)
			wide.fd[i] = client_connect_for_copies();
		if (wide.fd[i] >= 0)
			carriers[count++] = (struct carrier){&w, &wide.fd[i]};
	}
	for (int i = 1; i < count; i++) {
		atomic_fetch_add(&w.running, 1);
		if (!thread_start(carry_beside, &carriers[i]))
			atomic_fetch_sub(&w.running, 1);
	}
	if (count)
		carry_pieces(&carriers[0]);
	while ((left = atomic_load(&w.running)))
		futex_wait(&w.running, left, 1000 * MS);
	if (*result == CUDA_SUCCESS)
		*result = atomic_load(&w.result);
	if (atomic_load(&w.broken))
		end_copies(result);
	pthread_mutex_unlock(&wide.lock);
	return *result != CUDA_SUCCESS || (count && !atomic_load(&w.broken));
}

/* A copy that the program waits for. */
static CUresult copy_over(unsigned call, struct wire_copy *c, char *host, size_t bytes)
{
	CUresult r;
	return copy_wide(call, c, host, bytes, &r) ? r : copy(call, c, host, bytes);
}

static CUresult write_card(struct wire_copy c, const void *src, size_t bytes)
{
	if (bytes && !src)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes <= SMALL)
		return bytes ? write_small(&c, src, bytes) : CUDA_SUCCESS;
	return copy_over(CALL_write_large, &c, (char *)src, bytes);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, void *src, size_t bytes) { return write_card((struct wire_copy){.address = dst}, src, bytes); }
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, void *src, size_t bytes, void *stream)
{
	return write_card((struct wire_copy){.address = dst, .stream = id_of(stream), .with_stream = 1}, src, bytes);
}
CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
	struct wire_copy c = {.address = src};
	return bytes && !dst ? CUDA_ERROR_INVALID_VALUE : copy_over(CALL_read, &c, dst, bytes);
}
/* The data is there when this returns, which is sooner than the program asks for. */
CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, void *stream)
{
	struct wire_copy c = {.address = src, .stream = id_of(stream), .with_stream = 1};
	return bytes && !dst ? CUDA_ERROR_INVALID_VALUE : copy_over(CALL_read, &c, dst, bytes);
}
