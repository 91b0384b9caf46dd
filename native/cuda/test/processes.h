/* Processes of one container that a test tells what to do, one thing at a time, and that answer what came of it. */
#ifndef PROCESSES_H
#define PROCESSES_H
#include <dirent.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include "calls.h"
#include "moves.h"

/* What an order does not need is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

enum order {
	DO_ALLOC, DO_FREE, DO_NAME, DO_OPEN, DO_CLOSE, DO_RANGE, DO_FILL, DO_FILLED, DO_OUT, DO_IN, DO_AGENT_OUT, DO_USED, DO_STATE, DO_FILES, DO_CREATE, DO_RETAIN, DO_EXPORT,
	DO_IMPORT, DO_MAP, DO_UNMAP, DO_RELEASE, DO_WRITE_ON, DO_WRITTEN, DO_LAUNCH, DO_QUIET, DO_HELD, DO_FORK, DO_EXEC, DO_EXEC_SELF, DO_CONTEXT, DO_SECOND,
	DO_FIRST, DO_END_SECOND, DO_MEET, DO_MEET_ON, DO_MET, DO_OPEN_ON, DO_OPENED, DO_SET, DO_GET, DO_CARD, DO_CLOSE_SOCKETS, DO_END,
};
struct word { enum order order; uint64_t a, b, c; CUipcMemHandle h; char text[160]; };
struct process { pid_t pid; int fd; };

static const CUmemProp to_share = {.type = 1, .handle_types = CU_MEM_HANDLE_POSIX_FD, .location = {CU_MEM_LOCATION_DEVICE, 0}};

/* Writes to an address as fast as it can; the library holds it back while the memory is away. */
static _Atomic bool writing;
static _Atomic uint64_t written;
static struct word written_at;
static void *write_on(void *arg)
{
	(void)arg;
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	while (atomic_load(&writing)) {
		EQUAL(cuMemsetD32Async(written_at.a, (unsigned)atomic_load(&written) + 1, written_at.b / 4, NULL), 0);
		atomic_fetch_add(&written, 1);
	}
	return NULL;
}

/* Opens what another process has, and closes it, as fast as it can. */
static void *open_on(void *arg)
{
	CUdeviceptr p;
	(void)arg;

	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	while (atomic_load(&writing)) {
		EQUAL(cuIpcOpenMemHandle_v2(&p, written_at.h, CU_IPC_LAZY_PEER_ACCESS), 0);
		EQUAL(cuIpcCloseMemHandle(p), 0);
		atomic_fetch_add(&written, 1);
	}
	return NULL;
}

/* A kernel that ends when the other process has launched it as often. */
static struct shared { struct stub_meeting meeting; _Atomic bool over; _Atomic int rounds[2]; } *together;
static struct stub_kernel collective = {.ns = 1000, .ranks = 2}, plain_kernel = {.ns = 20000};
static CUresult launch(struct stub_kernel *k) { return cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }

/* As training does: work of its own, then a collective; it launches ahead of what is done. */
static void *meet_on(void *arg)
{
	(void)arg;
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	for (int i = 1; !atomic_load(&together->over); i++) {
		for (int k = 0; k < 20; k++)
			EQUAL(launch(&plain_kernel), 0);
		EQUAL(launch(&collective), 0);
		atomic_fetch_add(&together->rounds[collective.rank], 1);
		if (i % 4 == 0)
			EQUAL(cuCtxSynchronize(), 0);
	}
	atomic_store(&together->meeting.launched[collective.rank], 1 << 30); /* nobody waits for it any more */
	return NULL;
}

static unsigned open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int orders; /* where they come from */

/* As programs do that become daemons: closes sockets that are not its own, whatever its threads do with them. */
static void close_sockets(void)
{
	char path[40], is[40];

	for (int fd = 3; fd < 1024; fd++) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		if (fd != orders && readlink(path, is, sizeof is) > 0 && !strncmp(is, "socket:", 7))
			syscall(SYS_close, fd); /* not seen by the sanitizer, which takes it for the race that it is */
	}
}

static struct word do_order(struct word w);
static void serve_orders(void)
{
	struct word w;

	EQUAL(cuInit(0), 0);
	EQUAL(cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	while (recv(orders, &w, sizeof w, 0) == (ssize_t)sizeof w) {
		w = do_order(w);
		CHECK(send(orders, &w, sizeof w, MSG_NOSIGNAL) == (ssize_t)sizeof w);
	}
	exit(0);
}

/* Another program under the library, which takes orders as this one did. */
static __attribute__((noreturn)) void become_another(void)
{
	char number[16];

	snprintf(number, sizeof number, "%d", orders);
	setenv("TEST_ORDERS", number, 1);
	CHECK(fcntl(orders, F_SETFD, 0) == 0);
	execl("/proc/self/exe", "another", NULL);
	_exit(1);
}

__attribute__((constructor)) static void another(void)
{
	if (!getenv("TEST_ORDERS"))
		return;
	orders = atoi(getenv("TEST_ORDERS"));
	unsetenv("TEST_ORDERS");
	serve_orders();
}

static struct word do_order(struct word w)
{
	static pthread_t writer;
	static CUcontext second, card_context;
	struct swap_result r;
	uint64_t missing;
	CUdeviceptr p = 0;
	CUmemHandle h;
	size_t size = 0;
	pid_t child;
	int fd, pass;

	switch (w.order) {
	case DO_ALLOC: w.c = (uint64_t)cuMemAlloc_v2(&p, w.a); w.a = p; break;
	case DO_FREE: w.c = (uint64_t)cuMemFree_v2(w.a); break;
	case DO_NAME: w.c = (uint64_t)cuIpcGetMemHandle(&w.h, w.a); break;
	case DO_OPEN: w.c = (uint64_t)cuIpcOpenMemHandle_v2(&p, w.h, CU_IPC_LAZY_PEER_ACCESS); w.a = p; break;
	case DO_CLOSE: w.c = (uint64_t)cuIpcCloseMemHandle(w.a); break;
	case DO_RANGE: w.c = (uint64_t)cuMemGetAddressRange_v2(&p, &size, w.a); w.a = p; w.b = size; break;
	/* As a call does: what leaves while it is asked for is waited for. */
	case DO_FILL: pass = memory_call_enter(); fill(w.a, w.b, (unsigned)w.c); memory_call_leave(pass); break;
	case DO_FILLED: pass = memory_call_enter(); w.c = filled(w.a, w.b, (unsigned)w.c); memory_call_leave(pass); break;
	case DO_CARD: w.c = (uint64_t)cuDevicePrimaryCtxRetain(&card_context, (CUdevice)w.a) | (uint64_t)real_cuCtxSetCurrent(card_context); break;
	case DO_SET: w.c = (uint64_t)cuMemsetD32Async(w.a, (unsigned)w.c, w.b / 4, NULL); break;
	case DO_GET: w.b = 0; w.c = (uint64_t)cuMemcpyDtoH_v2(&w.b, w.a, 4); break;
	case DO_AGENT_OUT: /* the agent asks before */
		snprintf(w.text, sizeof w.text, "%s", swap_refusal() ? swap_refusal() : "");
		w.c = 1;
		if (*w.text)
			break;
		/* fall through */
	case DO_OUT: swap_out(w.a ? w.a : UINT64_MAX, &r); w.c = !r.done; w.a = r.bytes; memcpy(w.text, r.why, sizeof w.text); break;
	case DO_IN: swap_in(&r, &missing); w.c = !r.done; memcpy(w.text, r.why, sizeof w.text); break;
	case DO_USED: container_reap(session.container); w.b = stub_card_used((int)w.a); w.a = used(); w.c = atomic_load(&session_row()->held[0]); break;
	case DO_STATE: snprintf(w.text, sizeof w.text, "%s", swap_refusal() ? swap_refusal() : ""); w.a = swap_is_out(); w.b = swap_is_away(); break;
	case DO_FILES: w.a = open_files(); break;
	case DO_CREATE: w.c = (uint64_t)cuMemCreate(&h, w.a, &to_share, 0); w.b = h; break;
	case DO_RETAIN: w.c = (uint64_t)cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)w.a); w.b = h; break;
	case DO_EXPORT: w.c = (uint64_t)cuMemExportToShareableHandle(&fd, w.b, CU_MEM_HANDLE_POSIX_FD, 0); w.a = (uint64_t)fd; break;
	case DO_IMPORT:
		fd = open(w.text, O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0);
		w.c = (uint64_t)cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_POSIX_FD);
		w.b = h;
		close(fd);
		break;
	case DO_MAP:
		p = reserve(w.a);
		EQUAL(cuMemMap(p, w.a, 0, w.b, 0), 0);
		w.c = (uint64_t)cuMemSetAccess(p, w.a, &all_of_it, 1);
		w.a = p;
		break;
	case DO_UNMAP: w.c = (uint64_t)cuMemUnmap(w.a, w.b); break;
	case DO_RELEASE: w.c = (uint64_t)cuMemRelease(w.b); break;
	case DO_WRITE_ON: written_at = w; atomic_store(&writing, true); EQUAL(pthread_create(&writer, NULL, write_on, NULL), 0); break;
	case DO_OPEN_ON: written_at = w; atomic_store(&writing, true); EQUAL(pthread_create(&writer, NULL, open_on, NULL), 0); break;
	case DO_OPENED:
		atomic_store(&writing, false);
		EQUAL(pthread_join(writer, NULL), 0);
		w.a = atomic_load(&written);
		break;
	case DO_WRITTEN:
		atomic_store(&writing, false);
		EQUAL(pthread_join(writer, NULL), 0);
		w.a = atomic_load(&written);
		w.c = true;
		for (uint64_t i = 0; i < written_at.b; i += 4)
			w.c &= *(unsigned *)(uintptr_t)(written_at.a + i) == (unsigned)w.a;
		break;
	case DO_LAUNCH: {
		struct stub_kernel *k = calloc(1, sizeof *k);
		k->ns = (int64_t)w.a;
		w.c = (uint64_t)cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
		break;
	}
	case DO_MEET:
		collective.rank = (int)w.a;
		collective.meeting = &together->meeting;
		w.c = (uint64_t)launch(&collective);
		break;
	case DO_MEET_ON:
		collective.rank = (int)w.a;
		collective.meeting = &together->meeting;
		EQUAL(pthread_create(&writer, NULL, meet_on, NULL), 0);
		break;
	case DO_MET: EQUAL(pthread_join(writer, NULL), 0); break;
	case DO_QUIET: atomic_store(&swap_quiet_ns, (int64_t)w.a); break;
	case DO_HELD: w.a = atomic_load(&memory_calls.held) % HELD_TOGETHER + atomic_load(&memory_calls.held) / HELD_TOGETHER; break;
	case DO_FORK: CHILD(child, { CHECK(!swap_is_away()); }); check_exit(child); break;
	case DO_EXEC: execl("/bin/sleep", "sleep", "600", NULL); _exit(1);
	case DO_EXEC_SELF: become_another();
	case DO_CLOSE_SOCKETS: close_sockets(); break;
	case DO_END: exit(0);
	case DO_SECOND: w.c = (uint64_t)cuCtxCreate_v2(&second, 0, 0); break;
	case DO_FIRST: w.c = (uint64_t)real_cuCtxSetCurrent(ctx); break;
	case DO_END_SECOND: w.c = (uint64_t)cuCtxDestroy_v2(second) | (uint64_t)real_cuCtxSetCurrent(ctx); break;
	case DO_CONTEXT: w.c = (uint64_t)cuDevicePrimaryCtxReset_v2(0); break;
	}
	return w;
}

/* As a user of the container; 0: as who runs the test. */
static struct process start_as(const char *root, uid_t user)
{
	struct process p;
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	CHILD(p.pid, {
		close(pair[0]);
		orders = pair[1];
		CHECK(!user || setuid(user) == 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setenv("ELASTICGPU_ROOT", root, 1);
		serve_orders();
	});
	close(pair[1]);
	p.fd = pair[0];
	return p;
}

static struct process start(const char *root) { return start_as(root, 0); }

static void begin_order(struct process p, struct word w) { CHECK(send(p.fd, &w, sizeof w, MSG_NOSIGNAL) == (ssize_t)sizeof w); }
static struct word end_order(struct process p)
{
	struct word w;
	CHECK(recv(p.fd, &w, sizeof w, 0) == (ssize_t)sizeof w);
	return w;
}
static struct word tell(struct process p, struct word w)
{
	begin_order(p, w);
	return end_order(p);
}
#define TELL(p, ...) tell(p, (struct word){__VA_ARGS__})
/* It succeeds. */
#define OK(p, ...) EQUAL(TELL(p, __VA_ARGS__).c, 0)

static void stop(struct process p)
{
	begin_order(p, (struct word){DO_END});
	check_exit(p.pid); /* as programs end */
}

/* ---- two of them ---- */

#define LIMITS_512 "device * memory 536870912"
static struct process a, b;

static void begin_two(void)
{
	together = mmap(NULL, sizeof *together, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(together != MAP_FAILED);
	check_limits("swap on\n", LIMITS_512);
	a = start(check_root);
	b = start(check_root);
	(void)(TELL(a, DO_HELD), TELL(b, DO_HELD)); /* both are there */
}

static __attribute__((unused)) CUdeviceptr alloc(struct process p, uint64_t size)
{
	struct word w = TELL(p, DO_ALLOC, size);
	EQUAL(w.c, 0);
	return w.a;
}

static CUipcMemHandle name(struct process p, CUdeviceptr ptr)
{
	struct word w = TELL(p, DO_NAME, ptr);
	EQUAL(w.c, 0);
	return w.h;
}

static CUdeviceptr open_in(struct process p, CUipcMemHandle h)
{
	struct word w = TELL(p, DO_OPEN, .h = h);
	EQUAL(w.c, 0);
	return w.a;
}

/* Both have all of it again; the agent would only see that they go on. */
static void back(struct process p) { UNTIL(!TELL(p, DO_STATE).b && !TELL(p, DO_HELD).a); }

/* One line to a process, and its answer, as the agent asks. */
static __attribute__((unused)) void ask(struct process p, const char *request, char *reply, size_t size)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval minute = {60, 0};
	size_t n = 0;
	ssize_t got;

	snprintf(to.sun_path, sizeof to.sun_path, "%s/run/elastic-gpu/control/%d.sock", check_root, (int)p.pid);
	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute) == 0);
	CHECK(dprintf(fd, "%s\n", request) > 0);
	while (n < size - 1 && (got = recv(fd, reply + n, size - 1 - n, 0)) > 0)
		n += (size_t)got;
	CHECK(n > 0);
	reply[n] = 0;
	close(fd);
}

static __attribute__((unused)) bool says(struct process p, const char *request, const char *want)
{
	char reply[8192];

	ask(p, request, reply, sizeof reply);
	return strstr(reply, want) != NULL;
}

static uint64_t card(struct process p) { return TELL(p, DO_USED).b; }
static uint64_t counted(struct process p) { return TELL(p, DO_USED).a; }

#endif
