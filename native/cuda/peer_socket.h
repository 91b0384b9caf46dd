/* How processes of one container ask each other about memory of the card that they share: one request, one answer. */
#ifndef ELASTIC_PEER_SOCKET_H
#define ELASTIC_PEER_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PEER_VERSION 1
/* Who asks is known by the kernel's word; no request says it. */
enum peer_asks {
	PEER_GIVE,   /* a descriptor of a chunk of a block: from now on the asker has that block */
	PEER_DROP,   /* the asker no longer has a block */
	PEER_LEAVE,  /* the memory of the asker, with its secret, moves: let go of all of it, and hold calls back until it is given again */
	PEER_RETURN, /* the asker's memory is there again */
};
enum peer_says { PEER_DONE, PEER_LATER, PEER_UNKNOWN, PEER_REFUSED };
struct peer_request { uint32_t version, ask; uint64_t id, secret; uint32_t chunk, wanted; };
struct peer_answer { uint32_t says; int32_t device; uint64_t size, chunk_size; char why[128]; };

#define PEER_THREAD "elastic-peers" /* the name of the thread that answers */
int peer_listen(void);
void peer_unlisten(void);
/* The next request, with who asks; -1 if there was none that can be read within a second. */
int peer_accept(int listener, struct peer_request *q, pid_t *from);
/* Answers with a descriptor, or with -1 without one; false if the asker has hung up. */
bool peer_reply(int fd, const struct peer_answer *a, int memory);
/*
 * A connection on which this was asked; -1 if that process cannot be asked. errno is ECONNREFUSED where it has been
 * replaced by another program, or ends, or has closed descriptors that are not its own.
 */
int peer_ask(pid_t pid, const struct peer_request *q);
/* Its answer and what came with it (-1: nothing); false if none came in time, or it hung up. */
bool peer_answered(int fd, struct peer_answer *a, int *memory, int64_t deadline);
/*
 * Whether that process is another program now than the one that answered, and has nothing of it: its threads have ended. The
 * kernel says so; a process may give its threads other names, and is then taken for another.
 */
bool peer_replaced(pid_t pid);
/* Both, within a second; errno is ETIMEDOUT or EAGAIN where it may answer later. Without memory no descriptor is wanted. */
bool peer_exchange(pid_t pid, struct peer_request q, struct peer_answer *a, int *memory);

#endif
