/*
 * The arbiter of a node. Below its folder, which is the agent's:
 *
 *   shares/ID/etc/limits        what a container has been granted; the container reads it and cannot write it
 *   shares/ID/etc/turns/UUID    decisions for that container on that card; likewise
 *   shares/ID/requests/UUID     what its processes ask for, which the container writes
 *
 * One thread per card reads requests, decides, and writes decisions; the first thread looks for shares that came or
 * went. A container is known by its folder, and its share is what its limits say: nothing a container writes says who it
 * is or what it may have.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "arbiter.h"
#include "card_power.h"
#include "limits_file.h"
#include "log.h"
#include "request_reader.h"
#include "system.h"

#define LOOK_NS (MS / 4)          /* between two looks while somebody wants the turn */
#define HANDOVER_LOOK_NS (MS / 40) /* while the turn is about to be given back: until we see that it was, the card may rest */
#define HANDOVER_NS (5 * MS)      /* as a rule it takes no longer than this; if it does, we look less often: */
#define DRAIN_LOOK_NS (MS / 10)
#define REST_LOOK_NS MS           /* while nobody has wanted it for a while */
#define EMPTY_LOOK_NS (20 * MS)   /* while no process is there */
#define AFTER_NS (1000 * MS)      /* "a while" */
#define ROWS_NS (20 * MS)         /* between two looks for new processes and at memory */
#define SCAN_NS (500 * MS)        /* between two looks for shares */
#define STUCK_NS (10000 * MS)     /* an arbiter that has not looked for so long is stuck */
#define MAX_CARDS 64

struct client {                   /* a container on a card */
	struct client *next;
	char share[256];
	int tenant;               /* -1: refused */
	int request;              /* its request file; -1 while that cannot be opened */
	uint64_t request_id, decision_id;
	struct decision_file *decision;
	bool seen, said_refused, said_size;
};
struct arbiter_card {
	char uuid[48];
	pthread_mutex_t lock;
	struct client *clients;
	struct card turns;
	struct power power;
	int64_t rows_read, active;
	bool quick;               /* a quick container is there */
};

static struct arbiter_card *cards[MAX_CARDS];
static char folder[512];

/* ---- the thread of a card ---- */

static void publish_row(struct arbiter_card *a, struct client *c, int row, bool memory, int64_t now)
{
	struct row *r = &a->turns.tenant[c->tenant].row[row];
	struct decision *d = &c->decision->row[row];

	if (atomic_load_explicit(&d->turn, memory_order_relaxed) != r->turn) {
		atomic_store(&d->turn, r->turn);
		futex_wake(&d->turn);
	}
	if (!memory)
		return;
	atomic_store(&d->enter, card_may_enter(&a->turns, c->tenant, row, now));
	if (atomic_load(&d->eviction) != r->eviction) {
		atomic_store(&d->evict, r->evict);
		atomic_store(&d->eviction, r->eviction);
	}
}

/* When somebody is expected. It stands while the turn is given back: the one that was expected has come. */
static void publish_window(struct arbiter_card *a, struct client *c, int64_t now)
{
	struct window w = {0, 0};

	if (!card_expects(&a->turns, c->tenant, now, &w) && a->turns.current.tenant != c->tenant)
		return;
	if (atomic_load_explicit(&c->decision->hold_until, memory_order_relaxed) == w.until)
		return;
	atomic_store(&c->decision->hold_us, (unsigned)((w.until - w.from) / 1000));
	atomic_store(&c->decision->hold_until, w.until);
}

static void publish(struct arbiter_card *a, bool memory, int64_t now)
{
	unsigned movable = memory ? card_movable(&a->turns, now) : 0;

	for (struct client *c = a->clients; c; c = c->next) {
		atomic_store(&c->decision->refused, c->tenant < 0 ? REFUSED_CONTAINERS : REFUSED_NOT);
		publish_window(a, c, now);
		for (int row = 0; c->tenant >= 0 && row < a->turns.tenant[c->tenant].rows; row++)
			publish_row(a, c, row, memory, now);
		atomic_store(&c->decision->waited, card_hurried(&a->turns, c->tenant));
		if (memory) {
			atomic_store(&c->decision->contended, card_contended(&a->turns, c->tenant, now));
			atomic_store(&c->decision->backlog_us, card_quick(&a->turns, c->tenant, now) ? (unsigned)(a->turns.tuning.backlog / 1000) : 0);
			atomic_store(&c->decision->movable, movable);
		}
		atomic_store(&c->decision->beat, now);
	}
}

static int64_t look(struct arbiter_card *a)
{
	int64_t now = now_ns(), handover;
	struct window w;
	bool rows = now - a->rows_read >= ROWS_NS, anybody = false;

	for (struct client *c = a->clients; c; c = c->next) {
		if (c->tenant < 0 || c->request < 0)
			continue;
		request_read(c->request, &a->turns, c->tenant, rows, now);
		if (rows)
			request_read_steps(c->request, &a->turns, c->tenant, now);
		if (rows)
			request_read_memory(c->request, &a->turns, c->tenant, now);
		anybody |= a->turns.tenant[c->tenant].rows > 0;
	}
	card_decide(&a->turns, now);
	if (rows) {
		card_decide_evictions(&a->turns, now);
		a->rows_read = now;
		a->quick = card_quick(&a->turns, -1, now);
	}
	publish(a, rows, now);
	if (card_active(&a->turns, now))
		a->active = now;
	if (card_expects(&a->turns, a->turns.current.tenant, now, &w) && now >= w.from)
		return HANDOVER_LOOK_NS;
	handover = card_handover(&a->turns);
	if (handover && a->turns.current.tenant < 0)
		return now - handover < HANDOVER_NS ? HANDOVER_LOOK_NS : DRAIN_LOOK_NS;
	return now - a->active < AFTER_NS ? (a->quick ? a->turns.tuning.look : LOOK_NS) : anybody ? REST_LOOK_NS : EMPTY_LOOK_NS;
}

static void *serve_card(void *arg)
{
	struct arbiter_card *a = arg;

	prctl(PR_SET_NAME, "elastic-turns");
	prctl(PR_SET_TIMERSLACK, 1000UL);
	for (;;) {
		pthread_mutex_lock(&a->lock);
		int64_t rest = look(a);
		pthread_mutex_unlock(&a->lock);
		sleep_ns(rest);
	}
	return NULL;
}

/* ELASTIC_ARBITER_SLICE_US and so on: to try out on a card what is right there. It is the node's environment. */
static void tune(const char *name, int64_t *ns)
{
	char variable[64], *end;
	const char *value;
	long us;

	snprintf(variable, sizeof variable, "ELASTIC_ARBITER_%s_US", name);
	value = getenv(variable);
	if (!value)
		return;
	us = strtol(value, &end, 10);
	if (end == value || *end || us < 1 || us > 1000000)
		log_error("%s is %s: a number of microseconds up to 1000000 is understood", variable, value);
	else
		*ns = us * (MS / 1000);
}

static void tune_switch(const char *name, bool *on)
{
	const char *value = getenv(name);

	if (value)
		*on = strcmp(value, "off") != 0;
}

static void tune_all(struct tuning *t)
{
	tune("SLICE", &t->slice);
	tune("START", &t->start);
	tune("LOOK", &t->look);
	tune("BACKLOG", &t->backlog);
	tune("CARD_SLICE", &t->card_slice);
	tune_switch("ELASTIC_ARBITER_BESIDE", &t->beside);
	tune_switch("ELASTIC_ARBITER_EXPECT", &t->expect);
}

static struct arbiter_card *card_of(const char *uuid)
{
	for (int i = 0; i < MAX_CARDS; i++) {
		struct arbiter_card *a = cards[i];
		if (a && !strcmp(a->uuid, uuid))
			return a;
		if (a)
			continue;
		a = calloc(1, sizeof *a);
		if (!a)
			return NULL;
		snprintf(a->uuid, sizeof a->uuid, "%s", uuid);
		pthread_mutex_init(&a->lock, NULL);
		card_start(&a->turns, now_ns());
		tune_all(&a->turns.tuning);
		if (!thread_start(serve_card, a)) {
			log_error("card %s: no thread: its containers limit themselves", uuid);
			free(a);
			return NULL;
		}
		return cards[i] = a;
	}
	return NULL;
}

/* ---- shares that come and go ---- */

/* Which file that is. Ours are open, so that no other gets their number; request files are in file systems of their own. */
static uint64_t file_id(const char *path)
{
	struct stat s;
	return lstat(path, &s) == 0 ? (uint64_t)s.st_ino ^ (uint64_t)s.st_dev << 40 : 0;
}

/* A file of another size belongs to another version: its container is left alone, and limits itself. */
static struct decision_file *map_decision(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct decision_file *d = MAP_FAILED;
	struct stat s;

	if (fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size == sizeof *d)
		d = mmap(NULL, sizeof *d, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (d == MAP_FAILED)
		return NULL;
	atomic_store(&d->version, TURNS_VERSION);
	return d;
}

static void client_close(struct client *c)
{
	munmap(c->decision, sizeof *c->decision);
	if (c->request >= 0)
		close(c->request);
	free(c);
}

/* Numbers of turns go on from where an arbiter before us left them: a turn of that time is over. */
static void join(struct arbiter_card *a, struct client *c, const struct device_limit *l)
{
	c->tenant = card_tenant_join(&a->turns, l->compute, l->lend, now_ns());
	if (c->tenant < 0 && !c->said_refused)
		log_error("card %s: more than %d containers: %s gets no turns", a->uuid, MAX_TENANTS, c->share);
	c->said_refused = c->tenant < 0;
	for (int i = 0; c->tenant >= 0 && i < MAX_ROWS; i++) {
		struct row *r = &a->turns.tenant[c->tenant].row[i];
		unsigned turn = atomic_load(&c->decision->row[i].turn);
		r->turn = turn + (turn & 1);
		r->eviction = atomic_load(&c->decision->row[i].eviction);
		if (turn & 1)
			a->turns.tenant[c->tenant].rows = i + 1; /* so that it is published */
	}
}

static void remove_client(struct arbiter_card *a, struct client **at)
{
	struct client *c = *at;

	*at = c->next;
	if (c->tenant >= 0)
		card_tenant_leave(&a->turns, c->tenant);
	client_close(c);
}

static struct client **find_client(struct arbiter_card *a, const char *share)
{
	struct client **at = &a->clients;

	while (*at && strcmp((*at)->share, share))
		at = &(*at)->next;
	return at;
}

/* The same container may be prepared anew: its files are then others. */
static struct client *client_of(struct arbiter_card *a, const char *share, const char *request, const char *decision)
{
	struct client **at = find_client(a, share), *c;
	uint64_t request_id = file_id(request), decision_id = file_id(decision);

	if (*at && ((*at)->request_id != request_id || (*at)->decision_id != decision_id))
		remove_client(a, at);
	at = find_client(a, share);
	if (*at)
		return *at;
	c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->decision = map_decision(decision);
	if (!c->decision) {
		free(c);
		return NULL;
	}
	snprintf(c->share, sizeof c->share, "%s", share);
	c->request = -1;
	c->tenant = -1;
	c->request_id = request_id;
	c->decision_id = decision_id;
	return *at = c;
}

static void serve_share_card(const char *share, const char *uuid, const struct limits *l)
{
	const struct device_limit *limit = limits_for(l, uuid);
	struct arbiter_card *a = limit->sharing == SHARING_SPACE ? NULL : card_of(uuid); /* in space there are no turns */
	char request[1024], decision[1024];
	struct client *c;

	if (!a)
		return;
	snprintf(request, sizeof request, "%s/shares/%s/requests/%s", folder, share, uuid);
	snprintf(decision, sizeof decision, "%s/shares/%s/etc/turns/%s", folder, share, uuid);
	pthread_mutex_lock(&a->lock);
	c = client_of(a, share, request, decision);
	if (c) {
		c->seen = true;
		if (c->request < 0)
			c->request = request_open(request);
		if (c->request >= 0 && request_restore(c->request) && !c->said_size) {
			log_error("card %s: share %s changes the size of its request file, which costs it its turns", uuid, share);
			c->said_size = true;
		}
		if (c->tenant < 0)
			join(a, c, limit);
		if (c->tenant >= 0)
			card_tenant_limits(&a->turns, c->tenant, limit->compute, limit->lend, limit->memory, (int64_t)l->quantum_ms * MS);
		if (c->tenant >= 0)
			card_tenant_latency(&a->turns, c->tenant, limit->latency);
	}
	pthread_mutex_unlock(&a->lock);
}

static bool plain_name(const char *name) { return name[0] != '.' && strlen(name) < 48; }

static void serve_share(const char *share)
{
	char path[1024], why[256];
	struct limits l;
	struct dirent *e;
	DIR *turns;

	snprintf(path, sizeof path, "%s/shares/%s/etc/limits", folder, share);
	if (!limits_read(path, &l, why, sizeof why))
		return; /* it is being made or taken away */
	snprintf(path, sizeof path, "%s/shares/%s/etc/turns", folder, share);
	turns = opendir(path);
	while (turns && (e = readdir(turns)))
		if (plain_name(e->d_name))
			serve_share_card(share, e->d_name, &l);
	if (turns)
		closedir(turns);
}

static void scan(void)
{
	char path[600];
	struct dirent *e;
	DIR *shares;

	for (int i = 0; i < MAX_CARDS && cards[i]; i++)
		for (struct client *c = cards[i]->clients; c; c = c->next)
			c->seen = false; /* only this thread reads it */
	snprintf(path, sizeof path, "%s/shares", folder);
	shares = opendir(path);
	while (shares && (e = readdir(shares)))
		if (e->d_name[0] != '.' && strlen(e->d_name) < sizeof ((struct client *)0)->share)
			serve_share(e->d_name);
	if (shares)
		closedir(shares);
	for (int i = 0; i < MAX_CARDS && cards[i]; i++) {
		struct arbiter_card *a = cards[i];
		pthread_mutex_lock(&a->lock);
		for (struct client **at = &a->clients; *at;)
			if ((*at)->seen)
				at = &(*at)->next;
			else
				remove_client(a, at);
		pthread_mutex_unlock(&a->lock);
	}
}

static void look_at_power(struct arbiter_card *a)
{
	int64_t now = now_ns(), busy;
	unsigned price;

	pthread_mutex_lock(&a->lock);
	busy = a->turns.busy;
	price = a->turns.price;
	pthread_mutex_unlock(&a->lock);
	price = power_look(&a->power, a->uuid, busy, price, now);
	pthread_mutex_lock(&a->lock);
	a->turns.price = price;
	pthread_mutex_unlock(&a->lock);
}

/* The lock, and in it when shares were last looked for, which needs every card's thread to get on. */
static int open_lock(const char *dir, int flags)
{
	char path[600];
	int fd;

	snprintf(path, sizeof path, "%s/arbiter.lock", dir);
	fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		log_error("%s: %s", path, strerror(errno));
	return fd;
}

int arbiter_run(const char *dir)
{
	int64_t now;
	int fd;

	snprintf(folder, sizeof folder, "%s", dir);
	mkdir(folder, 0750); /* the agent makes it with the first share, which may come later */
	fd = open_lock(folder, O_RDWR | O_CREAT);
	if (fd < 0)
		return 1;
	/* Two arbiters would give the same turn twice: the one of an upgrade waits until the old one has ended. */
	while (flock(fd, LOCK_EX) != 0)
		if (errno != EINTR) {
			log_error("%s/arbiter.lock: %s", folder, strerror(errno));
			return 1;
		}
	for (;;) {
		scan();
		for (int i = 0; i < MAX_CARDS && cards[i]; i++)
			look_at_power(cards[i]);
		now = now_ns();
		if (pwrite(fd, &now, sizeof now, 0) != sizeof now) {
			log_error("%s/arbiter.lock: %s", folder, strerror(errno));
			return 1;
		}
		sleep_ns(SCAN_NS);
	}
}

int arbiter_check(const char *dir)
{
	int fd = open_lock(dir, O_RDONLY);
	int64_t at = 0, past;

	if (fd < 0)
		return 1;
	if (pread(fd, &at, sizeof at, 0) != sizeof at)
		at = 0;
	close(fd);
	past = now_ns() - at;
	if (at && past >= 0 && past < STUCK_NS)
		return 0;
	log_error("%s: the arbiter has not looked for shares for %lld s", dir, (long long)(past / 1000 / MS));
	return 1;
}
