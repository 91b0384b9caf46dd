/*
 * What client and server send each other. Each direction is a row of numbered frames; a frame is retained by its sender until
 * the other side says, in the frames it sends itself, that it has seen it. So a connection that breaks is followed by
 * another on which each side begins after the last frame that the other has seen: nothing is lost, nothing runs twice.
 */
#ifndef ELASTIC_REMOTE_FRAMES_H
#define ELASTIC_REMOTE_FRAMES_H

#include <stdint.h>

#define REMOTE_VERSION ((uint64_t)0x454c52454d000000 | 4) /* of the frames and of calls.tab */
#define CHUNK ((uint32_t)4 << 20)                 /* a copy travels in pieces of this size */
#define MOST_PAYLOAD ((uint32_t)64 << 20)         /* code, above all */
#define MOST_NAME 4096

struct hello {                  /* the first bytes of a connection, and of the answer */
	uint64_t version;
	unsigned char session[16]; /* zeroes: a new one, which the answer names. Who knows it may go on with it */
	uint64_t seen;             /* the number of the last frame that the sender of this has seen */
	uint64_t refused;          /* in the answer: 0, or why there is no session (REFUSED_*). A client's: TAKES_WAIT, or 0 */
	uint64_t kind;             /* HELLO_* */
};
/*
 * HELLO_SHARED asks for memory in place of the connection: an answer of the same kind comes with a file of it, if both are on
 * one node. Who is between may not have carried the file; so the client then says in 8 bytes whether it has it (1) or not (0).
 */
/*
 * HELLO_WAIT comes before the answer: the session is there, and answers when a call of its comes back from the driver. That may
 * take hours, while the card is others'.
 */
enum { HELLO_CALLS, HELLO_COPIES, HELLO_SHARED, HELLO_WAIT };
enum { TAKES_WAIT = 1 };
enum { REFUSED_VERSION = 1, REFUSED_SESSION, REFUSED_PROCESSES };

struct frame {
	uint32_t size;             /* of the payload that follows */
	uint16_t call;             /* a number of enum remote_call; 0: nothing but what the sender has seen */
	uint16_t lane;             /* the client's thread */
	uint64_t number;           /* 1, 2, 3, …; of a frame that is nothing else: 0 */
	uint64_t seen;             /* as in the hello */
};

/*
 * A large copy goes over several connections at once, beside the frames: a piece, with its data on the way to the card, and an
 * answer, with its data on the way back. A piece does no harm if it is copied again, so one that is lost goes with the frames.
 */
struct answer {                 /* begins the payload of a frame of the server */
	uint64_t of;               /* the number of the call that it answers */
	int32_t result;            /* CUresult */
	uint32_t unused;
};

#endif
