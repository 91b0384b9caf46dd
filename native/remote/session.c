/*
 * A session on the server's side. One thread reads calls and carries them out in their order, each in the context of the
 * program's thread that made it. A call that may wait for the card is carried out by a thread of its own for that thread of
 * the program, where there are several: the others' calls go on. So a call begins after all that were made before it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "address.h"
#include "constants.h"
#include "inbox.h"
#include "log.h"
#include "pass.h"
#include "server.h"
#include "system.h"

#define ACK_FRAMES 256
#define MOST_SPIN_NS (500 * MS / 1000) /* between calls: as long as a program needs whose network takes 0.2 ms each way */
#define MOST_JOBS 8                     /* of a thread of the program that waits for them */

struct driver driver;

bool driver_load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!lib) {
		log_error("%s", dlerror());
		return false;
	}
#define LOAD(name, mode) driver.name = (fn_##name)dlsym(lib, #name);
	EACH_CALL(LOAD)
	return driver.cuInit && driver.cuCtxSetCurrent && driver.cuInit(0) == CUDA_SUCCESS;
}

static struct {
	struct connection to;
	int control, resume_seconds;
	unsigned char id[16];
	struct outbox out;
	struct inbox in;
	_Atomic uint64_t unsaid;        /* frames that came since we said last what we have seen */
	_Atomic int error;              /* of a call that nobody waited for; shows at the next that somebody does */
	unsigned lanes;                 /* threads of the program that have called */
	pthread_mutex_t lock;           /* of what follows */
	pthread_cond_t came;
	int fresh;                      /* a connection in place of a broken one; -1: none yet */
	struct hello fresh_hello;
} session = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER, .fresh = -1};

/* ---- the connection ---- */

/* Takes other connections of this session, which the process that listens passes on: for copies, or in place of a broken one. */
static void *take_connections(void *unused)
{
	struct hello h, answer = {.version = REMOTE_VERSION}, wait = {.version = REMOTE_VERSION, .kind = HELLO_WAIT};
	int fd;

	(void)unused;
	memcpy(answer.session, session.id, sizeof answer.session);
	memcpy(wait.session, session.id, sizeof wait.session);
	while (pass_receive(session.control, &h, &fd) && fd >= 0) {
		if (h.kind == HELLO_COPIES) {
			if (!copies_serve(fd))
				close(fd);
			else
				socket_write(fd, &answer, sizeof answer); /* no piece comes before */
			continue;
		}
		if (h.refused == TAKES_WAIT)
			socket_write(fd, &wait, sizeof wait); /* who is to answer may be held back */
		pthread_mutex_lock(&session.lock);
		if (session.fresh >= 0)
			close(session.fresh);
		session.fresh = fd;
		session.fresh_hello = h;
		pthread_cond_signal(&session.came);
		pthread_mutex_unlock(&session.lock);
	}
	return NULL; /* nobody listens any more */
}

/* Another connection, if one comes in time; -1 if not. */
static int fresh_connection(struct hello *h, const struct timespec *until)
{
	int fd;

	pthread_mutex_lock(&session.lock);
	while (session.fresh < 0 && pthread_cond_timedwait(&session.came, &session.lock, until) == 0)
		;
	fd = session.fresh;
	*h = session.fresh_hello;
	session.fresh = -1;
	pthread_mutex_unlock(&session.lock);
	return fd;
}

/* Answers a hello, with memory in place of the connection if it asks for that and takes it. */
static bool answer_hello(const struct hello *asked, struct hello *answer, struct connection *c)
{
	static const struct timeval moment = {.tv_sec = 10}, forever = {0};
	uint64_t takes = 0;
	int file = asked->kind == HELLO_SHARED && address_local(c->fd) ? shared_make() : -1;
	bool ok, offered = file >= 0 && connection_share(c, file, SERVER_SIDE);

	c->most_spin_ns = MOST_SPIN_NS;
	answer->kind = offered ? HELLO_SHARED : HELLO_CALLS;
	ok = offered ? pass_send(c->fd, file, answer) : socket_write(c->fd, answer, sizeof *answer);
	if (file >= 0)
		close(file);
	if (ok && offered) {
		setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
		ok = socket_read(c->fd, &takes, sizeof takes);
		setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
	}
	if (!ok || takes != 1)
		connection_unshare(c);
	return ok;
}

/* The connection broke: goes on with another, if there is one within the time that the program has. */
static bool resume(void)
{
	struct hello h, answer = {.version = REMOTE_VERSION};
	struct connection fresh = {0};
	struct timespec until;
	bool ok = false;

	connection_shut(&session.to);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += session.resume_seconds;
	memcpy(answer.session, session.id, sizeof answer.session);
	while (!ok && (fresh.fd = fresh_connection(&h, &until)) >= 0) {
		answer.seen = atomic_load(&session.out.seen);
		session.in.from = session.in.to = 0;
		if (!answer_hello(&h, &answer, &fresh)) {
			close(fresh.fd);
			continue;
		}
		ok = outbox_resume(&session.out, h.seen, &fresh, &session.to) && outbox_flush(&session.out, &session.to);
	}
	return ok;
}

static bool take(void *to, size_t size) { return inbox_take(&session.in, &session.to, to, size); }

/* ---- answers ---- */

static void reply(unsigned call, struct served *s, int result)
{
	struct { struct answer a; unsigned char out[sizeof s->out.bytes]; } payload;
	int sticky = result == CUDA_SUCCESS && !services[call].aside ? atomic_exchange(&session.error, 0) : 0;
	uint64_t n;

	if (sticky) {
		if (s->apart.over)
			s->apart.over(s->apart.arg);
		s->apart = (struct apart){0};
		s->out.size = 0;
	}
	if (result != CUDA_SUCCESS)
		s->out.size = 0;
	payload.a = (struct answer){s->number, sticky ? sticky : result, 0};
	memcpy(payload.out, s->out.bytes, s->out.size);
	n = outbox_add(&session.out, call, s->lane, &payload, sizeof payload.a + s->out.size, s->apart);
	if (!n)
		_exit(1); /* the program has not read thousands of answers: it has gone mad */
	if (outbox_flush(&session.out, &session.to))
		session.unsaid = 0; /* every frame says what we have seen */
}

int service_run(unsigned call, struct served *s)
{
	static _Atomic unsigned done;
	int r;

	atomic_fetch_add(&done, 1);
	r = services[call].aside || lane_enter(s->lane) ? services[call].serve(s) : CUDA_ERROR_INVALID_CONTEXT;
	atomic_fetch_add(&done, 1);
	return r;
}

static int serve(unsigned call, struct served *s)
{
	int r = service_run(call, s);

	if (r == BROKEN)
		return BROKEN;
	if (services[call].answers)
		reply(call, s, r);
	else if (r != CUDA_SUCCESS) {
		int none = 0;
		atomic_compare_exchange_strong(&session.error, &none, r);
	}
	return CUDA_SUCCESS;
}

/* ---- calls that wait for the card ---- */

struct job { unsigned call; struct served s; void *payload; void (*over)(void *); };
static struct worker {
	pthread_mutex_t lock;
	pthread_cond_t more, less;
	struct job jobs[MOST_JOBS];
	unsigned first, count;
} *workers[MOST_LANES];

static void *work(void *arg)
{
	struct worker *w = arg;

	prctl(PR_SET_NAME, "elastic-lane");
	for (;;) {
		pthread_mutex_lock(&w->lock);
		while (!w->count)
			pthread_cond_wait(&w->more, &w->lock);
		struct job j = w->jobs[w->first];
		pthread_mutex_unlock(&w->lock);
		if (serve(j.call, &j.s) == BROKEN)
			_exit(1);
		if (j.over)
			j.over(j.payload);
		pthread_mutex_lock(&w->lock);
		w->first = (w->first + 1) % MOST_JOBS;
		w->count--;
		pthread_cond_signal(&w->less);
		pthread_mutex_unlock(&w->lock);
	}
	return NULL;
}

static struct worker *worker_of(unsigned lane)
{
	struct worker *w = workers[lane];

	if (w)
		return w;
	w = calloc(1, sizeof *w);
	if (!w)
		return NULL;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	pthread_cond_init(&w->less, NULL);
	if (!thread_start(work, w)) {
		free(w);
		return NULL;
	}
	return workers[lane] = w;
}

/* Hands a call to the thread of its lane, with its payload. */
static int hand_over(unsigned call, struct served *s, void *payload, void (*over)(void *))
{
	struct worker *w = worker_of(s->lane);
	bool ok = false;

	if (!w)
		return BROKEN;
	pthread_mutex_lock(&w->lock);
	if (w->count < MOST_JOBS) {
		w->jobs[(w->first + w->count++) % MOST_JOBS] = (struct job){call, *s, payload, over};
		pthread_cond_signal(&w->more);
		ok = true;
	}
	pthread_mutex_unlock(&w->lock);
	return ok ? CUDA_SUCCESS : BROKEN;
}

static bool lane_busy(unsigned lane)
{
	struct worker *w = workers[lane];
	bool busy = false;

	if (w) {
		pthread_mutex_lock(&w->lock);
		busy = w->count > 0;
		pthread_mutex_unlock(&w->lock);
	}
	return busy;
}

/* A thread of the program calls on once it has its answers: what they came from ends in a moment. */
static void lane_settle(unsigned lane)
{
	struct worker *w = workers[lane];

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	while (w->count)
		pthread_cond_wait(&w->less, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

/* ---- calls ---- */

/* Where a payload goes that is not small: what is copied to the card, where the card reads it. */
static void *payload_for(const struct frame *f, void (**over)(void *))
{
	if (f->call == CALL_write_large && f->size <= BUFFER_BYTES && lane_enter(f->lane)) {
		*over = buffer_put;
		return buffer_get();
	}
	*over = free;
	return malloc(f->size);
}

static bool valid(const struct frame *f)
{
	return f->size <= MOST_PAYLOAD && f->call < REMOTE_CALLS && services[f->call].serve && f->lane < MOST_LANES && f->number == atomic_load(&session.out.seen) + 1;
}

/* Carries out a call whose payload is there. */
static int dispatch(const struct frame *f, unsigned char *payload, void (*over)(void *))
{
	struct served s;
	int r;

	s.lane = f->lane;
	s.number = f->number;
	s.in = (struct reader){payload, payload + f->size};
	s.out.size = 0;
	s.apart = (struct apart){0};
	if (f->lane > session.lanes)
		session.lanes = f->lane;
	if (services[f->call].blocks && (session.lanes > 1 || lane_busy(f->lane))) {
		if (!over) { /* it lies where the next will be read to */
			unsigned char *copy = malloc(f->size ? f->size : 1);
			if (!copy)
				return BROKEN;
			memcpy(copy, payload, f->size);
			s.in = (struct reader){copy, copy + f->size};
			payload = copy;
			over = free;
		}
		return hand_over(f->call, &s, payload, over);
	}
	lane_settle(f->lane);
	r = serve(f->call, &s);
	if (over)
		over(payload);
	return r;
}

/* Reads a call and carries it out; false when the connection broke, and *end when the session is over. */
static bool next_call(bool *end)
{
	unsigned char small[4096], *payload = small;
	void (*over)(void *) = NULL;
	struct frame f;

	if (!take(&f, sizeof f))
		return false;
	if (!outbox_seen(&session.out, f.seen) || (f.call && !valid(&f)) || (!f.call && f.size)) {
		*end = true;
		return true;
	}
	if (!f.call)
		return true;
	if (f.size > sizeof small && !(payload = payload_for(&f, &over)))
		_exit(1);
	if (!take(payload, f.size)) {
		if (over)
			over(payload);
		return false;
	}
	atomic_store(&session.out.seen, f.number);
	session.unsaid += 1 + f.size / 4096;
	*end = f.call == CALL_goodbye || dispatch(&f, payload, over) == BROKEN;
	if (session.unsaid >= ACK_FRAMES) {
		session.unsaid = 0;
		outbox_acknowledge(&session.out, &session.to);
	}
	return true;
}

int session_run(int fd, int control, const struct hello *first, const unsigned char *id, int resume_seconds)
{
	struct hello answer = {.version = REMOTE_VERSION};
	bool end = false;

	session.to.fd = fd;
	session.control = control;
	session.resume_seconds = resume_seconds;
	memcpy(session.id, id, sizeof session.id);
	memcpy(answer.session, id, sizeof answer.session);
	code_key(id);
	if (first->seen || !outbox_start(&session.out) || !thread_start(take_connections, NULL) || !answer_hello(first, &answer, &session.to))
		return 1;
	address_tune(fd);
	while (!end)
		if (!next_call(&end) && !resume())
			return 1;
	return 0;
}
