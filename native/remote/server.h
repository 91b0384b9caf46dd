/* A session on the server's side: one process of the program, which has one process here. */
#ifndef ELASTIC_REMOTE_SERVER_H
#define ELASTIC_REMOTE_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include "bytes.h"
#include "client.h" /* kinds of handles */
#include "outbox.h"
#include "remote_calls.h"
#include "wire_calls.h"

#define BROKEN (-1) /* what came is no call: the session ends */

/* A call that is being answered. */
struct served {
	unsigned lane;
	uint64_t number;
	struct reader in;
	struct writer out;
	struct apart apart; /* the rest of the answer, where it is large */
};

struct service {
	const char *name;
	int (*serve)(struct served *);
	bool blocks, answers;
	bool aside; /* it is no call of the driver: it needs no context, and errors of calls before it show at another */
};
extern const struct service services[REMOTE_CALLS];

/* The card's driver. */
extern struct driver driver;
bool driver_load(void);

/* The card's NVML (server_nvml.c), which is loaded when a program asks for it. */
extern struct nvml nvml;
int32_t nvml_ready(void);
int32_t nvml_card(int32_t number, nvmlDevice *dev);

/* What calls.tab does not describe (server_own.c, server_nvml.c). */
int serve_goodbye(struct served *s);
int serve_lane_end(struct served *s);
int serve_lane_context(struct served *s);
int serve_retain(struct served *s);
int serve_release(struct served *s);
int serve_create_context(struct served *s);
int serve_destroy_context(struct served *s);
int serve_load(struct served *s);
int serve_load_again(struct served *s);
int serve_words(struct served *s);
int serve_link(struct served *s);
int serve_linked(struct served *s);
int serve_pointer(struct served *s);
int serve_function(struct served *s);
int serve_global(struct served *s);
int serve_launch(struct served *s);
int serve_write(struct served *s);
int serve_write_large(struct served *s);
int serve_read(struct served *s);
int serve_fence(struct served *s);
int serve_end_copies(struct served *s);
int serve_error_text(struct served *s);
int serve_nvml_cards(struct served *s);
int serve_nvml_own_bytes(struct served *s);

/* Objects by the client's handle (server_objects.c). */
bool object_find(struct served *s, enum handle_kind kind, uint64_t id, void **real);
bool object_free(enum handle_kind kind, uint64_t id);
bool object_set(enum handle_kind kind, uint64_t id, void *real);
uint64_t object_add(enum handle_kind kind, void *real);
void object_drop(enum handle_kind kind, uint64_t id);

struct kernel {                 /* how a function's parameters lie in memory; it ends with its owner */
	uint64_t owner;            /* a module, or LIBRARY | a library */
	uint32_t count, bytes;
	struct wire_param param[];
};
#define LIBRARY ((uint64_t)1 << 63)
void kernel_set(enum handle_kind kind, uint64_t id, struct kernel *k); /* KIND_function or KIND_kernel */
const struct kernel *kernel_of(enum handle_kind kind, uint64_t id);

/* Memory on the card that is the program's: nothing else is copied from or to. */
void memory_add(struct served *s, CUdeviceptr ptr, uint64_t bytes);
void memory_add_variable(struct served *s, uint64_t owner, CUdeviceptr ptr, uint64_t bytes); /* until the owner is unloaded */
void memory_drop(CUdeviceptr ptr);
bool memory_begins(CUdeviceptr ptr);
bool memory_owns(CUdeviceptr ptr, uint64_t n, unsigned unit);
bool memory_owns_rows(CUdeviceptr ptr, uint64_t pitch, uint64_t width, uint64_t height, unsigned unit);
void memory_forget(uint64_t context);

/* The context of a client's thread, and its own stream there. */
uint64_t lane_context(unsigned lane);
void lane_set_context(unsigned lane, uint64_t context);
void lane_drop(unsigned lane);
void lanes_forget(uint64_t context);
bool lane_enter(unsigned lane); /* makes it this thread's */

/* Buffers that copies go through (server_buffers.c). */
#define BUFFER_BYTES ((size_t)CHUNK + 4096) /* a piece, and what is said of it */
void *buffer_get(void);
void buffer_put(void *buffer);

/* Code that may be loaded again (server_code.c). */
struct code_name;
void code_key(const unsigned char *session); /* before any other */
void code_retain(void *code, size_t size);     /* takes it over */
const void *code_find(const struct code_name *name); /* until code is retained again; NULL: there is none */

/* Carries out a call in this thread. What another thread has carried out before, as the program had it, is seen here. */
int service_run(unsigned call, struct served *s);

/* Serves a connection for copies, in a thread of its own; false if there are enough. */
bool copies_serve(int fd);
/* Ends all of them: what they still carry out is over when this returns. */
void copies_end(void);

/* Serves until the program says goodbye, or is away for so long. */
int session_run(int fd, int control, const struct hello *first, const unsigned char *id, int resume_seconds);

#endif
