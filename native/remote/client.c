/*
 * The client's side of a session. Calls that need no answer are appended to the outbox; a thread sends what has gathered
 * there. A call that waits sends everything itself, and then one of those that wait reads answers for all of them. A
 * connection that breaks is made again by who reads, and both sides go on after the last frame that the other has seen.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <unistd.h>
#include "address.h"
#include "client.h"
#include "constants.h"
#include "inbox.h"
#include "log.h"
#include "pass.h"
#include "remote_calls.h"
#include "system.h"

#define RESUME_NS (30000 * MS)
#define MOST_SPIN_NS (500 * MS / 1000) /* drivers look for their card's answer by themselves, too */

enum { STATE_NONE, STATE_READY, STATE_LOST };

static struct {
	_Atomic int state;
	struct connection to;
	unsigned char session[16];
	struct outbox out;
	_Atomic unsigned unsent;       /* futex: 1 while the sending thread has something to do */
	pthread_mutex_t lock;          /* of what follows */
	pthread_cond_t changed;
	bool reading;                  /* some thread reads from the connection, or makes it again */
	struct slot *waiting;
	struct inbox in;               /* who reads */
} client = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- threads of the program ---- */

static pthread_key_t lane_key;
static struct { pthread_mutex_t lock; unsigned next, free, list[1 << 16]; } lanes = {.lock = PTHREAD_MUTEX_INITIALIZER, .next = 1};
static __thread unsigned own_lane;

static void lane_end(void *lane)
{
	unsigned n = (unsigned)(uintptr_t)lane;

	call_async(CALL_lane_end, NULL, 0);
	pthread_mutex_lock(&lanes.lock);
	lanes.list[lanes.free++] = n;
	pthread_mutex_unlock(&lanes.lock);
	own_lane = 0;
}

/* The number by which the server knows this thread; 0: there are too many, or no session. */
static unsigned lane(void)
{
	if (atomic_load(&client.state) != STATE_READY)
		return 0;
	if (own_lane)
		return own_lane;
	pthread_mutex_lock(&lanes.lock);
	if (lanes.free)
		own_lane = lanes.list[--lanes.free];
	else if (lanes.next < MOST_LANES)
		own_lane = lanes.next++;
	pthread_mutex_unlock(&lanes.lock);
	pthread_setspecific(lane_key, (void *)(uintptr_t)own_lane);
	return own_lane;
}

/* ---- the connection ---- */

static void lose(const char *why)
{
	if (atomic_exchange(&client.state, STATE_LOST) != STATE_LOST)
		log_error("remote card: %s; every call fails from now on", why);
}

/* Takes the answer to a hello, and *file, which may come with what is before it; *waited: the session is there. */
static bool take_answer(int fd, struct hello *answer, int *file, bool *waited)
{
	bool came;

	*file = -1;
	do {
		int with;
		came = pass_receive(fd, answer, &with);
		if (with >= 0 && *file >= 0)
			close(*file);
		if (with >= 0)
			*file = with;
		*waited |= came && answer->kind == HELLO_WAIT;
	} while (came && answer->kind == HELLO_WAIT && answer->version == REMOTE_VERSION && !answer->refused);
	if (!came && *file >= 0)
		close(*file);
	return came;
}

/* Says which session this is, and takes the answer, with the memory that may come with it. */
static bool exchange_hellos(struct connection *c, const struct hello *h, struct hello *answer, bool *refused, bool *waited)
{
	uint64_t shares = 0;
	int file;

	if (!socket_write(c->fd, h, sizeof *h) || !take_answer(c->fd, answer, &file, waited))
		return false;
	*refused = answer->version != REMOTE_VERSION || answer->refused;
	if (!*refused && file >= 0 && answer->kind == HELLO_SHARED)
		shares = connection_share(c, file, CLIENT_SIDE);
	if (file >= 0)
		close(file);
	return !*refused && (answer->kind != HELLO_SHARED || socket_write(c->fd, &shares, sizeof shares));
}

/* Connects and says which session this is; false if that does not work now, and *refused if it never will. *waited: the session
 * was there, and had not answered yet. */
static bool say_hello(uint64_t kind, uint64_t seen, struct hello *answer, struct connection *c, bool *refused, bool *waited)
{
	struct hello h = {.version = REMOTE_VERSION, .seen = seen, .kind = kind, .refused = TAKES_WAIT};

	*c = (struct connection){.fd = address_connect(), .most_spin_ns = MOST_SPIN_NS};
	if (c->fd < 0)
		return false;
	if (kind == HELLO_CALLS && address_local(c->fd))
		h.kind = HELLO_SHARED;
	memcpy(h.session, client.session, sizeof h.session);
	if (exchange_hellos(c, &h, answer, refused, waited))
		return true;
	connection_unshare(c);
	close(c->fd);
	return false;
}

/* How long there may be no connection. */
static int64_t away_ns(void)
{
#ifdef ELASTICGPU_TESTING
	const char *ms = getenv("ELASTICGPU_AWAY_MS"); /* so that tests need not wait long */
	if (ms)
		return atoll(ms) * MS;
#endif
	return RESUME_NS;
}

/* Who reads makes the connection again. */
static bool resume(void)
{
	int64_t until = now_ns() + away_ns();
	bool refused = false;

	connection_shut(&client.to);
	while (atomic_load(&client.state) == STATE_READY && !refused && now_ns() < until) {
		struct connection fresh;
		struct hello answer;
		bool waited = false;
		if (!say_hello(HELLO_CALLS, atomic_load(&client.out.seen), &answer, &fresh, &refused, &waited)) {
			if (!refused)
				sleep_ns(10 * MS);
			if (waited)
				until = now_ns() + away_ns(); /* from when it broke on */
			continue;
		}
		client.in.from = client.in.to = 0;
		refused = !outbox_resume(&client.out, answer.seen, &fresh, &client.to);
		if (!refused && outbox_flush(&client.out, &client.to))
			return true;
		connection_shut(&client.to);
	}
	lose(refused ? "the session is over" : "no connection to its server for 30 s");
	return false;
}

/* ---- reading: one thread at a time ---- */

static void begin_reading(void)
{
	pthread_mutex_lock(&client.lock);
	while (client.reading)
		pthread_cond_wait(&client.changed, &client.lock);
	client.reading = true;
	pthread_mutex_unlock(&client.lock);
}

/* Begins to read where nobody else does. */
static bool may_read(void)
{
	pthread_mutex_lock(&client.lock);
	bool may = !client.reading;
	client.reading = true;
	pthread_mutex_unlock(&client.lock);
	return may;
}

static void end_reading(void)
{
	pthread_mutex_lock(&client.lock);
	client.reading = false;
	pthread_cond_broadcast(&client.changed);
	pthread_mutex_unlock(&client.lock);
}

static bool take(void *to, size_t size) { return inbox_take(&client.in, &client.to, to, size); }

static bool discard(size_t size)
{
	unsigned char away[4096];

	while (size) {
		size_t n = size < sizeof away ? size : sizeof away;
		if (!take(away, n))
			return false;
		size -= n;
	}
	return true;
}

static struct slot *slot_of(uint64_t number)
{
	struct slot *s;

	pthread_mutex_lock(&client.lock);
	for (s = client.waiting; s && s->of != number; s = s->next)
		;
	pthread_mutex_unlock(&client.lock);
	return s;
}

static void slot_unlink(struct slot *gone)
{
	for (struct slot **p = &client.waiting; *p; p = &(*p)->next)
		if (*p == gone) {
			*p = gone->next;
			return;
		}
}

/* Reads a frame; false if the connection broke. A slot has its answer once all of it is there. */
static bool read_frame(void)
{
	struct frame f;
	struct answer a;
	struct slot *s;

	if (!take(&f, sizeof f))
		return false;
	if (!outbox_seen(&client.out, f.seen) || (f.call && (f.number != atomic_load(&client.out.seen) + 1 || f.size < sizeof a))) {
		lose("its server does not speak our language");
		return true;
	}
	if (!f.call)
		return true;
	if (!take(&a, sizeof a))
		return false;
	s = slot_of(a.of);
	size_t size = f.size - sizeof a;
	bool whole = s && a.result == CUDA_SUCCESS && size == s->size;
	if (whole ? !take(s->into, size) : !discard(size))
		return false;
	atomic_store(&client.out.seen, f.number);
	if (s) {
		pthread_mutex_lock(&client.lock);
		slot_unlink(s);
		s->result = a.result == CUDA_SUCCESS && !whole ? CUDA_ERROR_DEVICE_UNAVAILABLE : a.result;
		s->done = true;
		pthread_mutex_unlock(&client.lock);
	}
	return true;
}

/* Reads a frame, as the only one who does. */
static void read_one(void)
{
	if (!read_frame())
		resume();
}

/* A program that calls nothing reads nothing, and its server does not wait long for a connection that broke: it is made again
 * in its place. */
static void look_after(void)
{
	if (atomic_load(&client.state) != STATE_READY || !connection_broken(&client.to) || !may_read())
		return;
	if (connection_broken(&client.to)) /* nobody has made it again */
		resume();
	end_reading();
}

/* ---- sending ---- */

static void *send_unsent(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "elastic-remote");
	for (;;) {
		if (!atomic_exchange(&client.unsent, 0)) {
			futex_wait(&client.unsent, 0, LOOK_NS);
			if (!atomic_load(&client.unsent))
				look_after();
			continue;
		}
		if (atomic_load(&client.state) != STATE_READY || outbox_flush(&client.out, &client.to))
			continue;
		shutdown(client.to.fd, SHUT_RDWR); /* who reads now notices */
		begin_reading();
		if (atomic_load(&client.state) == STATE_READY && !outbox_flush(&client.out, &client.to))
			resume();
		end_reading();
	}
	return NULL;
}

static CUresult state_error(void)
{
	return atomic_load(&client.state) == STATE_LOST ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_NOT_INITIALIZED;
}

/* Appends a call, after waiting for space if need be; 0 if there is no session. */
static uint64_t append(unsigned call, const void *args, size_t size, struct apart apart)
{
	unsigned l = lane();
	uint64_t n = 0;

	while (l && atomic_load(&client.state) == STATE_READY && !(n = outbox_add(&client.out, call, l, args, size, apart))) {
		begin_reading();
		if (outbox_unseen(&client.out)) {
			outbox_flush(&client.out, &client.to);
			read_one();
		}
		end_reading();
	}
	return n;
}

CUresult call_async(unsigned call, const void *args, size_t size)
{
	if (!append(call, args, size, (struct apart){0}))
		return state_error();
	if (outbox_try(&client.out, &client.to))
		return CUDA_SUCCESS;
	if (!atomic_exchange(&client.unsent, 1))
		futex_wake(&client.unsent);
	return CUDA_SUCCESS;
}

CUresult slot_send(struct slot *s, unsigned call, const void *args, size_t size, const void *data, size_t bytes)
{
	uint64_t n;

	for (;;) {
		unsigned l = lane();
		pthread_mutex_lock(&client.lock);
		n = l ? outbox_add(&client.out, call, l, args, size, (struct apart){.data = data, .size = bytes}) : 0;
		if (n) {
			s->of = n;
			s->done = false;
			s->next = client.waiting;
			client.waiting = s;
		}
		pthread_mutex_unlock(&client.lock);
		if (n)
			break;
		if (!l)
			return state_error();
		begin_reading();
		outbox_flush(&client.out, &client.to);
		read_one();
		end_reading();
	}
	outbox_flush(&client.out, &client.to); /* if it is broken, who reads notices */
	return CUDA_SUCCESS;
}

CUresult slot_wait(struct slot *s)
{
	bool done;

	pthread_mutex_lock(&client.lock);
	while (!s->done && atomic_load(&client.state) == STATE_READY) {
		if (client.reading) {
			pthread_cond_wait(&client.changed, &client.lock);
			continue;
		}
		client.reading = true;
		pthread_mutex_unlock(&client.lock);
		read_one();
		pthread_mutex_lock(&client.lock);
		client.reading = false;
		pthread_cond_broadcast(&client.changed);
	}
	done = s->done;
	if (!done)
		slot_unlink(s);
	pthread_mutex_unlock(&client.lock);
	return done ? s->result : state_error();
}

CUresult call_sync_lending(unsigned call, const void *args, size_t size, const void *data, size_t bytes, void *into, size_t expect)
{
	struct slot s = {.into = into, .size = expect};
	CUresult r = slot_send(&s, call, args, size, data, bytes);
	return r == CUDA_SUCCESS ? slot_wait(&s) : r;
}

CUresult call_sync(unsigned call, const void *args, size_t size, void *into, size_t expect)
{
	return call_sync_lending(call, args, size, NULL, 0, into, expect);
}

/* ---- the session ---- */

static void goodbye(void)
{
	if (atomic_load(&client.state) == STATE_READY && call_async(CALL_goodbye, NULL, 0) == CUDA_SUCCESS)
		outbox_flush(&client.out, &client.to);
}

static void handles_forked(void);
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

/* The parent's session is not the child's, who may begin one. Threads that the child does not have may have held locks. */
static void forked(void)
{
	if (atomic_exchange(&client.state, STATE_NONE) != STATE_NONE)
		close(client.to.fd);
	client.to.memory = NULL; /* a child does not have it */
	pthread_mutex_init(&starting, NULL);
	pthread_mutex_init(&client.lock, NULL);
	pthread_cond_init(&client.changed, NULL);
	pthread_mutex_init(&lanes.lock, NULL);
	client.reading = false;
	client.waiting = NULL;
	memset(client.session, 0, sizeof client.session);
	own_lane = 0;
	copies_forked();
	cached_forked();
	code_forked();
	contexts_forked();
	handles_forked();
}

static CUresult open_session(void)
{
	struct hello answer;
	bool refused = false, waited = false;
	static bool once;

	if (!once) {
		pthread_key_create(&lane_key, lane_end);
		pthread_atfork(NULL, NULL, forked);
		atexit(goodbye);
		once = true;
	}
	if (!say_hello(HELLO_CALLS, 0, &answer, &client.to, &refused, &waited)) {
		log_error("remote card: %s", refused ? "its server refuses this process: another version, or too many processes" : "no connection to its server");
		return CUDA_ERROR_NO_DEVICE;
	}
	memcpy(client.session, answer.session, sizeof client.session);
	client.in.from = client.in.to = 0;
	if (!outbox_start(&client.out) || !thread_start(send_unsent, NULL)) {
		connection_unshare(&client.to);
		close(client.to.fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	atomic_store(&client.state, STATE_READY);
	return CUDA_SUCCESS;
}

CUresult client_start(void)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&starting);
	if (atomic_load(&client.state) == STATE_LOST)
		r = CUDA_ERROR_DEVICE_UNAVAILABLE;
	else if (atomic_load(&client.state) == STATE_NONE)
		r = open_session();
	pthread_mutex_unlock(&starting);
	return r;
}

CUresult elastic_remote_call(uint64_t version, unsigned call, const void *args, size_t size, void *into, size_t expect)
{
	CUresult r = version == REMOTE_VERSION ? client_start() : CUDA_ERROR_NOT_SUPPORTED;
	return r == CUDA_SUCCESS ? call_nvml(call, args, size, into, expect) : r;
}

int client_connect_for_copies(void)
{
	struct connection c;
	struct hello answer;
	bool refused = false, waited = false;
	return say_hello(HELLO_COPIES, 0, &answer, &c, &refused, &waited) ? c.fd : -1;
}

bool client_ready(void) { return atomic_load(&client.state) == STATE_READY; }

unsigned client_lane(void) { return lane(); }

const unsigned char *client_session(void) { return client.session; }

/* ---- handles ---- */

static struct { pthread_mutex_t lock; uint64_t next[KINDS]; uint64_t *list[KINDS]; size_t free[KINDS], most[KINDS]; } handles = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void handles_forked(void) { pthread_mutex_init(&handles.lock, NULL); }

uint64_t handle_make(enum handle_kind kind)
{
	uint64_t h;

	pthread_mutex_lock(&handles.lock);
	h = handles.free[kind] ? handles.list[kind][--handles.free[kind]] : FIRST_HANDLE + handles.next[kind]++;
	pthread_mutex_unlock(&handles.lock);
	return h;
}

void handle_free(enum handle_kind kind, uint64_t handle)
{
	pthread_mutex_lock(&handles.lock);
	if (handles.free[kind] == handles.most[kind]) {
		size_t more = handles.most[kind] ? 2 * handles.most[kind] : 64;
		uint64_t *list = realloc(handles.list[kind], more * sizeof *list);
		if (list) {
			handles.list[kind] = list;
			handles.most[kind] = more;
		}
	}
	if (handles.free[kind] < handles.most[kind])
		handles.list[kind][handles.free[kind]++] = handle;
	pthread_mutex_unlock(&handles.lock);
}
