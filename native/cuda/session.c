/* This process under the library: its limits, its row, its cards. Nothing happens before the first CUDA call. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "driver_symbols.h"
#include "ledger.h"
#include "log.h"
#include "mps.h"
#include "paths.h"
#include "session.h"
#include "shared_file.h"
#include "system.h"

struct session session = {.process = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct session_parts *parts; /* set before anything is started */
static _Atomic int64_t looked;       /* when the limits file was last looked at */
static _Atomic uint64_t stamp;       /* of the file last read */

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
	log_error("%s: no GPU is granted", why);
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
		atomic_store(&d->space, g->sharing == SHARING_SPACE);
		parts->limits_changed(d);
	}
}

void session_reload(bool force)
{
	int64_t now = now_ns(), last = atomic_load(&looked);
	struct limits l;
	char why[256];
	uint64_t s;

	if (!atomic_load(&session.started) || (!force && now - last < 10 * MS) || !atomic_compare_exchange_strong(&looked, &last, now))
		return;
	s = file_stamp();
	if (!s || (s == atomic_load(&stamp) && !force))
		return;
	if (!limits_read(path_limits(), &l, why, sizeof why)) {
		if (atomic_exchange(&stamp, s) != s)
			log_error("%s: the limits before it stay", why);
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

/* The agent has made both files. Without them nothing can hold this process to its share: it gets no launches. */
static void open_turns(struct device *d)
{
	char path[640], why[640];

	snprintf(path, sizeof path, "%s/%s", path_requests(), d->uuid);
	d->request = shared_map_made(path, sizeof *d->request, true, why, sizeof why);
	snprintf(path, sizeof path, "%s/%s", path_turns(), d->uuid);
	d->decision = d->request ? shared_map_made(path, sizeof *d->decision, false, why, sizeof why) : NULL;
	if (d->decision)
		return;
	d->request = NULL;
	log_error("%s: no compute is granted on this card; a container of an older agent has to be made anew", why);
}

static bool gives_descriptors(CUdevice dev)
{
	int can = 0;
	return real_cuDeviceGetAttribute && real_cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_POSIX_FD, dev) == CUDA_SUCCESS && can;
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
		d->mps = mps_client(d->cu);
		d->posix_fd = gives_descriptors(d->cu);
		d->index = container_device(session.container, d->uuid);
		if (d->index < 0) {
			log_error("card %s: this container has more than %d cards", d->uuid, MAX_DEVICES);
			return false;
		}
		if (!d->request) /* the child of a fork has the parent's */
			open_turns(d);
	}
	session.devices = count;
	return true;
}

static bool open_container(void)
{
	char why[640];

	if (!session.container)
		session.container = container_open(path_container(), why, sizeof why);
	if (!session.container)
		log_error("%s: no GPU is granted", why);
	return session.container != NULL;
}

bool session_view(struct limits *l)
{
	bool ok;

	pthread_mutex_lock(&lock);
	ok = session_limits(l) && open_container();
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
	atomic_store(&session.started, false);
	session.devices = 0;
	container_fork_child();
	parts->forked();
}

/* Before the driver is up: limits and the container's file must be there. After cuInit: devices. */
static bool start_locked(void)
{
	static bool forks_watched;
	struct limits l;
	int process;

	if (!session_limits(&l) || !open_container())
		return false;
	memcpy(session.container_name, l.container, sizeof l.container);
	if (!forks_watched)
		forks_watched = pthread_atfork(fork_prepare, fork_parent, fork_child) == 0;
	container_forget_own(session.container);
	process = container_join(session.container);
	if (process < 0) {
		log_error("more than %d processes in this container: no GPU is granted", MAX_PROCESSES);
		return false;
	}
	if (!start_devices(&l)) {
		container_leave(session.container, process);
		return false;
	}
	atomic_store(&stamp, file_stamp());
	atomic_store(&session.process, process);
	apply(&l);
	atomic_store(&session.started, true);
	return true;
}

bool session_start(const struct session_parts *registered)
{
	bool ok = atomic_load_explicit(&session.started, memory_order_acquire), first = false;

	if (ok)
		return true;
	pthread_mutex_lock(&lock);
	ok = atomic_load(&session.started);
	if (!ok) {
		parts = registered;
		ok = first = start_locked();
	}
	pthread_mutex_unlock(&lock);
	if (first)
		parts->started();
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
