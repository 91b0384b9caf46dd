/* The client's side of a session: calls in order, and answers to those that wait for one. */
#ifndef ELASTIC_REMOTE_CLIENT_H
#define ELASTIC_REMOTE_CLIENT_H

#include <stdbool.h>
#include "driver_types.h"
#include "frames.h"
#include "outbox.h"

#define CUDA_ERROR_DEVICE_UNAVAILABLE 46
#define CUDA_ERROR_FILE_NOT_FOUND 301

/* A call that waits for its answer. */
struct slot {
	uint64_t of;
	void *into;                    /* where what comes back goes; exactly that much comes with success */
	size_t size;
	bool done;
	CUresult result;
	struct slot *next;
};

CUresult client_start(void);
bool client_ready(void);
/* For the other library of ours in the program, which has the same number of a version: begins the session if need be. */
__attribute__((visibility("default"))) CUresult elastic_remote_call(uint64_t version, unsigned call, const void *args, size_t size, void *into, size_t expect);
CUresult call_async(unsigned call, const void *args, size_t size);
CUresult call_sync(unsigned call, const void *args, size_t size, void *into, size_t expect);
/* The same, with a part of its payload that is the caller's again when this returns. */
CUresult call_sync_lending(unsigned call, const void *args, size_t size, const void *data, size_t bytes, void *into, size_t expect);
/* The same for an answer that cannot change (client_cached.c), while there is a session. */
CUresult call_cached(unsigned call, const void *args, size_t size, void *into, size_t expect);
/* A call of NVML's, cached or not. */
CUresult call_nvml(unsigned call, const void *args, size_t size, void *into, size_t expect);
/* What an answer was about may be gone. */
void cached_forget(void);
void cached_forked(void);
/* Sends a call without waiting for its answer, which slot_wait does. */
CUresult slot_send(struct slot *s, unsigned call, const void *args, size_t size, const void *data, size_t bytes);
CUresult slot_wait(struct slot *s);

/* Another connection of this session, for copies; -1 if there is none to be had. */
int client_connect_for_copies(void);
unsigned client_lane(void);
/* The session's 16 bytes, which its server alone knows, too. */
const unsigned char *client_session(void);
/* The child has no connections of its parent's (client_copies.c). */
void copies_forked(void);
/* The child's session has none of its parent's code and functions (client_code.c), nor its contexts (client_own.c). */
void code_forked(void);
void contexts_forked(void);

/* Handles that the client makes: small numbers, each in use once. */
enum handle_kind { KIND_context, KIND_stream, KIND_event, KIND_module, KIND_library, KIND_function, KIND_kernel, KIND_graph, KIND_exec, KINDS };
#define FIRST_HANDLE 16 /* below are the driver's own: no stream, the legacy one, the thread's own */
uint64_t handle_make(enum handle_kind kind);
void handle_free(enum handle_kind kind, uint64_t handle);

/* What the client knows of a function, or of a library's kernel, which any context can launch: how its parameters lie in memory. */
#define MOST_PARAMS 4096
struct function {
	uint64_t id;
	bool kernel;
	uint32_t count, bytes;         /* parameters, and their size all together */
	struct { uint32_t offset, size; } param[];
};
static inline uint64_t id_of_function(CUfunction f) { return f && !((struct function *)f)->kernel ? ((struct function *)f)->id : 0; }
static inline uint64_t id_of_kernel(CUfunction f) { return f && ((struct function *)f)->kernel ? ((struct function *)f)->id : 0; }
uint64_t id_of_callable(CUfunction f); /* where a kernel may stand for its function in the current context (client_code.c) */
static inline uint64_t id_of(void *handle) { return (uint64_t)(uintptr_t)handle; }

#endif
