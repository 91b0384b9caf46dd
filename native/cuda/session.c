/* This process under the library: limits read, region joined, cards known. Nothing happens before the first CUDA call. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "elastic.h"

struct session session = {.process = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool started;
static _Atomic int64_t looked;       /* when the limits file was last looked at */
static _Atomic uint64_t stamp;       /* of the file last read */

/* Paths are fixed: nothing inside the container chooses another. Tests build a variant that reads a root. */
#ifdef ELASTICGPU_TESTING
static const char *rooted(const char *path, char *buffer, size_t size)
{
	const char *root = getenv("ELASTICGPU_ROOT");
	snprintf(buffer, size, "%s%s", root ? root : "", path);
	return buffer;
}
#define PATH(name, value) const char *name(void) { static __thread char b[256]; return rooted(value, b, sizeof b); }
#else
#define PATH(name, value) const char *name(void) { return value; }
#endif
PATH(path_limits, "/etc/elastic-gpu/limits")
PATH(path_region, "/run/elastic-gpu/region")
PATH(path_control, "/run/elastic-gpu/control")
PATH(path_cards, "/run/elastic-gpu/cards")
PATH(path_pool, "/run/elastic-gpu/pool")

int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void sleep_ns(int64_t ns)
{
	struct timespec t = {ns / 1000000000, ns % 1000000000};
	nanosleep(&t, NULL);
}

uint64_t hash_text(const char *s)
{
	uint64_t h = 0xcbf29ce484222325;
	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3;
	return h ? h : 1;
}

void complain(const char *format, ...)
{
	char text[512] = "elastic-gpu: ";
	va_list args;
	va_start(args, format);
	int n = 13 + vsnprintf(text + 13, sizeof text - 14, format, args);
	va_end(args);
	if (n > (int)sizeof text - 2)
		n = sizeof text - 2;
	text[n++] = '\n';
	if (write(STDERR_FILENO, text, (size_t)n) < 0)
		return;
}

/*
 * Threads of ours take no signals: those belong to the program. pthread_create is looked up, for where it lives
 * differs between versions of libc and this library must load with all of them.
 */
bool thread_start(void *(*run)(void *), void *arg)
{
	typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
#ifdef ELASTICGPU_TESTING
	create_fn create = pthread_create; /* the sanitizers must see it */
#else
	create_fn create = (create_fn)real_dlsym(NULL, "pthread_create");
#endif
	pthread_attr_t detached;
	sigset_t all, before;
	pthread_t t;
	bool ok;

	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	ok = create && create(&t, &detached, run, arg) == 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&detached);
	return ok;
}

static uint64_t file_stamp(void)
{
	struct statx s;
	if (syscall(SYS_statx, AT_FDCWD, path_limits(), 0, STATX_BASIC_STATS, &s) != 0)
		return 0;
	return (s.stx_ino * 0x9e3779b97f4a7c15) ^ ((uint64_t)s.stx_mtime.tv_sec * 1000000007 + s.stx_mtime.tv_nsec) ^ (s.stx_size << 48);
}

static bool session_limits(struct limits *out)
{
	char why[256];
	if (limits_read(path_limits(), out, why, sizeof why))
		return true;
	complain("%s: no GPU is granted", why);
	return false;
}

static void apply(const struct limits *l)
{
	atomic_store(&session.swap, l->swap || l->oversubscribe);
	atomic_store(&session.oversubscribe, l->oversubscribe);
	atomic_store(&session.control_any, l->control_any);
	atomic_store(&session.quantum_ms, l->quantum_ms);
	for (int i = 0; i < session.devices; i++) {
		struct device *d = &session.device[i];
		const struct device_limit *g = limits_for(l, d->uuid);
		atomic_store(&d->limit, g->memory);
		atomic_store(&d->share, g->compute);
		atomic_store(&d->lend, g->lend);
		gate_reload(d);
	}
}

/* Reads the limits again if the file changed; looks at most every 10 ms unless forced. */
void session_reload(bool force)
{
	int64_t now = now_ns(), last = atomic_load(&looked);
	struct limits l;
	char why[256];
	uint64_t s;

	if (!atomic_load(&started) || (!force && now - last < 10 * MS) || !atomic_compare_exchange_strong(&looked, &last, now))
		return;
	s = file_stamp();
	if (!s || (s == atomic_load(&stamp) && !force))
		return;
	if (!limits_read(path_limits(), &l, why, sizeof why)) {
		if (atomic_exchange(&stamp, s) != s)
			complain("%s: the limits before it stay", why);
		return;
	}
	atomic_store(&stamp, s);
	apply(&l);
}

static void uuid_text(const CUuuid *u, const char *prefix, char *out)
{
	const unsigned char *b = u->bytes;
	snprintf(out, 48, "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix, b[0], b[1], b[2],
		b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static void name_device(struct device *d, const struct limits *l)
{
	CUuuid uuid = {{0}};
	CUresult r = real_cuDeviceGetUuid_v2 ? real_cuDeviceGetUuid_v2(&uuid, d->cu) :
		real_cuDeviceGetUuid ? real_cuDeviceGetUuid(&uuid, d->cu) : CUDA_ERROR_NOT_FOUND;

	uuid_text(&uuid, "MIG-", d->uuid); /* an instance of a card has a UUID of its own */
	for (int i = 0; r == CUDA_SUCCESS && i < l->devices; i++)
		if (!strcmp(l->device[i].uuid, d->uuid))
			return;
	uuid_text(&uuid, "GPU-", d->uuid);
}

static struct card *open_card(struct device *d)
{
	char path[640], why[640];
	struct card *c;

	snprintf(path, sizeof path, "%s/%s", path_cards(), d->uuid);
	c = map_shared(path, sizeof *c, why, sizeof why);
	if (c)
		return c;
	/* No card directory: this container is alone with its cards as far as anybody knows. */
	snprintf(path, sizeof path, "%s-%s", path_region(), d->uuid);
	return map_shared(path, sizeof *c, why, sizeof why);
}

static bool start_devices(const struct limits *l)
{
	int count = 0;

	if (!real_cuDeviceGetCount || real_cuDeviceGetCount(&count) != CUDA_SUCCESS)
		return false;
	if (count > MAX_DEVICES)
		count = MAX_DEVICES;
	for (int i = 0; i < count; i++) {
		struct device *d = &session.device[i];
		if (real_cuDeviceGet(&d->cu, i) != CUDA_SUCCESS)
			return false;
		name_device(d, l);
		d->index = region_device(session.region, d->uuid);
		d->card = open_card(d);
		if (d->index < 0 || !d->card) {
			complain("card %s: no shared region", d->uuid);
			return false;
		}
	}
	session.devices = count;
	return true;
}

static bool open_region(void)
{
	char why[640];

	if (!session.region)
		session.region = region_open(path_region(), why, sizeof why);
	if (!session.region)
		complain("%s: no GPU is granted", why);
	return session.region != NULL;
}

/* What NVML needs in a process that never calls CUDA: the grant and the region, without a row of its own. */
bool session_view(struct limits *l)
{
	bool ok;

	pthread_mutex_lock(&lock);
	ok = session_limits(l) && open_region();
	pthread_mutex_unlock(&lock);
	return ok;
}

static void fork_prepare(void) { pthread_mutex_lock(&lock); ledger_fork(0); }
static void fork_parent(void) { ledger_fork(1); pthread_mutex_unlock(&lock); }
static void fork_child(void)
{
	ledger_fork(2);
	pthread_mutex_unlock(&lock);
	atomic_store(&session.process, -1);
	atomic_store(&started, false);
	session.devices = 0;
	gate_fork_child();
	swap_fork_child();
	control_fork_child();
}

/* Before the driver is up: limits and region must be there. After cuInit: devices. */
static bool start_locked(void)
{
	static bool forks_watched;
	struct limits l;
	int process;

	if (!session_limits(&l) || !open_region())
		return false;
	memcpy(session.container, l.container, sizeof l.container);
	if (!forks_watched)
		forks_watched = pthread_atfork(fork_prepare, fork_parent, fork_child) == 0;
	process = region_join(session.region);
	if (process < 0) {
		complain("more than %d processes in this container: no GPU is granted", MAX_PROCESSES);
		return false;
	}
	if (!start_devices(&l)) {
		region_leave(session.region, process);
		return false;
	}
	atomic_store(&stamp, file_stamp());
	atomic_store(&session.process, process);
	apply(&l);
	atomic_store(&started, true);
	return true;
}

/* True once this process is under the limits; false means it gets no GPU. */
bool session_start(void)
{
	bool ok = atomic_load_explicit(&started, memory_order_acquire), first = false;

	if (ok)
		return true;
	pthread_mutex_lock(&lock);
	ok = atomic_load(&started);
	if (!ok)
		ok = first = start_locked();
	pthread_mutex_unlock(&lock);
	if (first)
		control_start();
	return ok;
}

struct device *device_of(CUdevice dev)
{
	for (int i = 0; i < session.devices; i++)
		if (session.device[i].cu == dev)
			return &session.device[i];
	return NULL;
}

struct device *device_current(void)
{
	CUdevice dev;

	if (session.devices == 1)
		return &session.device[0];
	if (session.devices == 0 || !real_cuCtxGetDevice || real_cuCtxGetDevice(&dev) != CUDA_SUCCESS)
		return NULL;
	return device_of(dev);
}
