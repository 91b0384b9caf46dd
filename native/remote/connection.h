/* A connection: a socket, and on one node memory that both sides have in place of it. */
#ifndef ELASTIC_REMOTE_CONNECTION_H
#define ELASTIC_REMOTE_CONNECTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define RING_BYTES ((uint64_t)1 << 20)

#ifdef ELASTICGPU_TESTING
#define LOOK_NS (10 * MS)   /* so that tests need not wait long */
#else
#define LOOK_NS (1000 * MS) /* who waits looks this often whether the other side is still there */
#endif

/* Bytes in one direction. Positions are counted from the beginning of time. Either side can write all of this. */
struct ring {
	_Alignas(64) _Atomic uint64_t written;
	_Alignas(64) _Atomic uint64_t read;
	_Alignas(64) _Atomic unsigned reader_sleeps; /* futexes */
	_Alignas(64) _Atomic unsigned writer_sleeps;
	_Alignas(4096) unsigned char bytes[RING_BYTES];
};

enum side { CLIENT_SIDE, SERVER_SIDE };
struct shared { struct ring from[2]; }; /* by who writes */

/* One thread reads at a time, and one writes. */
struct connection {
	int fd;
	struct shared *memory;   /* NULL: bytes go over the socket, which otherwise says that the other side is there */
	struct ring *in, *out;
	uint64_t read, written;  /* this side's own, which the other cannot move */
	unsigned reads;          /* so many times */
	bool gone;               /* the other side is, and has written up to a position */
	uint64_t end;
	int64_t most_spin_ns;    /* the longest usual wait for which a reader looks, rather than sleeps */
	int64_t usual_ns;        /* how long it had to wait of late */
};

/* A file of memory for a connection, whose size is fixed; -1 if there is none to be had. */
int shared_make(void);
/* The connection uses such a file from now on; the caller still closes it. */
bool connection_share(struct connection *c, int file, enum side side);
/* It uses its socket again. */
void connection_unshare(struct connection *c);
/* It uses what another has, whose socket it has already. */
void connection_replace(struct connection *c, const struct connection *by);
/* The other side has ended it, also where there is something to be read. */
bool connection_broken(const struct connection *c);
/* Nobody reads or writes any more. For who reads. */
void connection_shut(struct connection *c);

/* As recv and sendmsg: waits until some bytes are there, or were taken. 0 or less: it is broken. */
ssize_t connection_receive(struct connection *c, void *to, size_t most);
ssize_t connection_send(struct connection *c, const struct iovec *list, int n);
bool connection_write(struct connection *c, const void *data, size_t size); /* all of it */
/* As much as there is space for in the shared memory; 0: there is none. */
ssize_t connection_try(struct connection *c, const struct iovec *list, int n);

#endif
