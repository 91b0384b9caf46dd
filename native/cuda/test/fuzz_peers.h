/*
 * What another process of the container says, fuzzed: as one that asks for memory of ours, and as one that is asked for
 * its own. This process is both sides: a thread of it stands at its socket.
 */
#ifndef FUZZ_PEERS_H
#define FUZZ_PEERS_H
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "../blocks.h"
#include "../movable_memory.h"
#include "../peer_service.h"
#include "../program_memory.h"
#include "../shared_exports.h"
#include "calls.h"

static struct {
	pthread_mutex_t lock;
	int listener, given; /* given: memory of a card, as a descriptor */
	struct shared_name ours;
	const uint8_t *says; /* what is left of the answers; NULL: it answers as the library does */
	size_t size;
} peer = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A byte of how to say it, then what is said. */
static uint8_t next_frame(const uint8_t **data, size_t *size, void *frame, size_t n)
{
	uint8_t how = **data;

	memset(frame, 0, n);
	n = *size - 1 < n ? *size - 1 : n;
	memcpy(frame, *data + 1, n);
	*data += n + 1;
	*size -= n + 1;
	return how;
}

static void answer_badly(int fd, const struct peer_request *q)
{
	struct peer_answer a = {.says = q->ask == PEER_GIVE ? PEER_UNKNOWN : PEER_DONE};
	uint8_t how = peer.size ? next_frame(&peer.says, &peer.size, &a, sizeof a) : 0;

	if (how & 1)
		a.says = PEER_DONE;
	if (how & 2)
		a.device = 0;
	if (how & 4)
		a.size = 4 * MiB, a.chunk_size = 2 * MiB;
	if (how & 32)
		send(fd, &a, a.says % (sizeof a + 1), MSG_NOSIGNAL);
	else if (!(how & 64))
		peer_reply(fd, &a, how & 8 ? peer.given : how & 16 ? peer.listener : -1);
}

static void *stand_at_the_socket(void *arg)
{
	struct peer_request q;
	struct peer_answer a;
	pid_t from;
	(void)arg;

	for (;;) {
		int fd = peer_accept(peer.listener, &q, &from), memory;
		if (fd < 0)
			continue;
		pthread_mutex_lock(&peer.lock);
		if (peer.says) {
			answer_badly(fd, &q);
		} else {
			memory = peer_service_answer(from, &q, &a);
			CHECK(a.says <= PEER_REFUSED && (memory < 0 || a.says == PEER_DONE) && memchr(a.why, 0, sizeof a.why));
			peer_reply(fd, &a, memory);
			if (memory >= 0)
				close(memory);
		}
		pthread_mutex_unlock(&peer.lock);
		close(fd);
	}
	return NULL;
}

static void begin_peers(void)
{
	const CUmemProp prop = {.type = 1, .handle_types = CU_MEM_HANDLE_POSIX_FD, .location = {CU_MEM_LOCATION_DEVICE, 0}};
	struct rlimit few = {128, 128}; /* one that leaks descriptors fails soon */
	uint64_t offset, size;
	CUmemHandle handle;
	CUdeviceptr p;
	pthread_t thread;

	EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0);
	CHECK(shared_export(movable_block(p, &offset, &size), offset, size, &peer.ours));
	EQUAL(real_cuMemCreate(&handle, 2 * MiB, &prop, 0), 0);
	EQUAL(real_cuMemExportToShareableHandle(&peer.given, handle, CU_MEM_HANDLE_POSIX_FD, 0), 0);
	peer.listener = peer_listen();
	CHECK(peer.listener >= 0 && setrlimit(RLIMIT_NOFILE, &few) == 0);
	EQUAL(pthread_create(&thread, NULL, stand_at_the_socket, NULL), 0);
}

static void script(const uint8_t *data, size_t size)
{
	pthread_mutex_lock(&peer.lock);
	peer.says = data;
	peer.size = size;
	pthread_mutex_unlock(&peer.lock);
}

/* ---- it asks ---- */

static void say(const void *frame, size_t n, bool with_memory, bool waits)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), memory;
	union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {{0}};
	struct iovec data = {(void *)(uintptr_t)frame, n};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
	struct peer_answer a;

	snprintf(to.sun_path, sizeof to.sun_path, "%s/%d", path_peers(), (int)getpid());
	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	if (with_memory) {
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof control.bytes;
		*CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &peer.given, sizeof peer.given);
	}
	CHECK(sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)n);
	if (waits) { /* or it hangs up */
		if (peer_answered(fd, &a, &memory, now_ns() + 60000 * MS) && memory >= 0)
			close(memory);
		else
			CHECK(memory < 0 && errno != ETIMEDOUT);
	}
	close(fd);
}

static void fuzz_peer_asks(const uint8_t *data, size_t size)
{
	struct peer_request drop = {.version = PEER_VERSION, .ask = PEER_DROP, .id = peer.ours.id, .secret = peer.ours.secret};
	struct block *b;

	for (unsigned i = 0; size && i < 32; i++) {
		struct peer_request q;
		uint8_t how = next_frame(&data, &size, &q, sizeof q);
		if (how & 1)
			q.version = PEER_VERSION;
		if (how & 2)
			q.ask %= PEER_RETURN + 1;
		if (how & 4)
			q.id = peer.ours.id;
		if (how & 8)
			q.secret = peer.ours.secret;
		say(&q, how & 16 ? q.chunk % (sizeof q + 1) : sizeof q, how & 32, how & 64);
	}
	say(&drop, sizeof drop, false, true);
	blocks_lock();
	b = shared_own(&peer.ours);
	CHECK(b && !b->importers && !b->import && b->size == 4 * MiB);
	blocks_unlock();
}

/* ---- it is asked ---- */

static void fuzz_peer_answers(const uint8_t *data, size_t size)
{
	struct shared_name n = {.magic = SHARED_MAGIC, .id = 1, .secret = 2, .pid = (uint32_t)getpid(), .size = 1};
	enum shared_when when;
	CUmemHandle handle;
	CUdeviceptr p = 0;
	uint8_t how;

	if (size < 1)
		return;
	how = next_frame(&data, &size, &n.offset, sizeof n.offset + sizeof n.size);
	n.program = how & 1;
	if (how & 2)
		n.offset = 0, n.size = MiB;
	script(data, size);
	if (n.program && shared_import(&n, program_adopt, &handle, &when) == CUDA_SUCCESS && when == SHARED_NOW)
		CHECK(program_release(handle));
	if (!n.program && shared_open(&n, &p, &when) == CUDA_SUCCESS) {
		CHECK(p && when == SHARED_NOW);
		if (how & 4) {
			shared_imports_leave(getpid(), 2);
			CHECK(shared_imports_away());
			shared_imports_return(false);
		}
		CHECK(shared_close(p));
	}
	script((const uint8_t *)"", 0); /* from now on it says yes */
	shared_imports_settle();
	script(NULL, 0);
	CHECK(!shared_imports_away() && !shared_imports_of(getpid(), 2));
	blocks_lock();
	for (struct block *b = blocks; b; b = b->next)
		CHECK(!b->import);
	blocks_unlock();
}

#endif
