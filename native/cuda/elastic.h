/* Inside of libelasticgpu: one section per file. The story is in docs/design/gpu-library.md. */
#ifndef ELASTIC_H
#define ELASTIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "driver.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_DEVICES 16
#define MAX_PROCESSES 1024
#define MAX_EXPORTS 1024
#define MAX_TENANTS 64
#define MAX_SEATS 256
#define PROTOCOL 1
#define MiB ((uint64_t)1 << 20)
#define GiB ((uint64_t)1 << 30)
#define MS ((int64_t)1000000)

/* ---- symbols.c: the real functions ---- */
struct entry {
	const char *symbol, *base;
	int since, per_thread;
	void *hook;
	_Atomic(void *) real;
};
extern struct entry entries[];
void *entry_resolve(int id);
static inline void *entry_real(int id)
{
	void *p = atomic_load_explicit(&entries[id].real, memory_order_relaxed);
	return p ? p : entry_resolve(id);
}
int entry_named(const char *symbol);
/* The hook for what cuGetProcAddress found at `found`, or NULL if it is not one of ours. */
void *entry_for_address(const char *base, void *found, int version, bool per_thread);
/* A function of libc or libdl past our own overrides of dlsym. */
void *libc_function(const char *name);
void *real_dlsym(void *handle, const char *name);
void *real_dlopen(const char *name, int flags);

#include "entries.h"

/* ---- limits.c: what the agent grants ---- */
struct device_limit {
	char uuid[48];      /* "GPU-…", "MIG-…", or "*" */
	uint64_t memory;    /* bytes */
	unsigned compute;   /* hundredths of a percent of the card's time */
	bool lend;          /* may use what neighbours leave */
};
struct limits {
	char container[64];
	bool swap, oversubscribe, control_any;
	unsigned quantum_ms;
	int devices;
	struct device_limit device[MAX_DEVICES + 1];
};
/* Parses text; on failure returns false and says why. */
bool limits_parse(const char *text, struct limits *out, char *why, size_t why_size);
bool limits_read(const char *path, struct limits *out, char *why, size_t why_size);
const struct device_limit *limits_for(const struct limits *l, const char *uuid);

/* ---- region.c: what the processes of one container hold together ---- */
struct region_process {
	_Atomic uint64_t owner;                   /* 0 free; else pid, start time and the starting bit */
	_Atomic uint64_t trying[MAX_DEVICES];     /* bytes it is about to take, if they fit */
	_Atomic uint64_t held[MAX_DEVICES];       /* bytes charged for allocations */
	_Atomic uint64_t overhead[MAX_DEVICES];   /* bytes charged for contexts and code */
	_Atomic uint64_t swapped[MAX_DEVICES];    /* bytes now in host memory */
	_Atomic uint64_t busy_ns[MAX_DEVICES];    /* card time used */
};
struct region {
	_Atomic uint64_t version;
	_Atomic uint64_t device[MAX_DEVICES];     /* hash of the UUID, in order of appearance */
	_Atomic uint64_t context_bytes[MAX_DEVICES];  /* what a context was last seen to take */
	_Atomic uint64_t context_maker[MAX_DEVICES];  /* who is making the first one */
	struct { _Atomic uint64_t key, owner; } export[MAX_EXPORTS];  /* IPC handles given out, and by whom */
	struct region_process process[MAX_PROCESSES];
};
void region_export(struct region *r, uint64_t key, int process);
/* Whether a living process of this container gave this handle out. */
bool region_exported(struct region *r, uint64_t key);
/* One process at a time makes the container's first context on a card, while nobody knows what one takes. */
bool region_first_context(struct region *r, int process, int device);
void region_context_known(struct region *r, int process, int device, uint64_t bytes);
struct region *region_open(const char *path, char *why, size_t why_size);
int region_device(struct region *r, const char *uuid);
int region_join(struct region *r);
void region_leave(struct region *r, int process);
uint64_t region_used(struct region *r, int device);
uint64_t region_reap(struct region *r);
bool region_charge(struct region *r, int process, int device, uint64_t bytes, uint64_t limit);
void region_refund(struct region *r, int process, int device, uint64_t bytes);
void region_set_overhead(struct region *r, int process, int device, uint64_t bytes);
uint64_t region_pid(uint64_t owner);
void *map_shared(const char *path, size_t size, char *why, size_t why_size);

/* ---- budget.c: whose turn it is on a card; time is an argument ---- */
struct tenant {
	_Atomic uint64_t id;          /* hash of the container's name; 0 free */
	_Atomic unsigned share;       /* hundredths of a percent */
	_Atomic unsigned lend;
	_Atomic int64_t credit;       /* ns of card time it may still use; negative is debt */
	_Atomic int64_t refilled;     /* when credit was last topped up */
	_Atomic int64_t had;          /* card time so far, in the measure of its share */
	_Atomic int64_t seen;
};
struct seat {                         /* one process on one card */
	_Atomic uint64_t owner;
	_Atomic int64_t kept_until;   /* the seat is free for others after this */
	_Atomic int64_t asked;        /* when it last asked for the turn */
	_Atomic unsigned tenant;
	_Atomic unsigned wants;       /* 1 while it waits for the turn */
	_Atomic int64_t since;
	_Atomic unsigned wake;        /* futex */
	_Atomic uint64_t resident;    /* bytes on the card that can be swapped */
	_Atomic uint64_t evict;       /* bytes asked of it */
	_Atomic unsigned runnable;    /* 1 when all its memory is on the card */
	_Atomic int64_t starved_since; /* it waits for room since then; 0 if not */
};
struct card {
	_Atomic uint64_t version;
	_Atomic uint64_t turn;        /* seat + 1 in the low 16 bits, then a count; 0 in the low bits: free */
	_Atomic int64_t lease;        /* the turn is void after this */
	_Atomic int64_t had;          /* the most any container has had */
	_Atomic int64_t busy;         /* card time used by all */
	_Atomic unsigned price;       /* of card time, in ten-thousandths: see power.c; 0 is 1 */
	_Atomic unsigned floor;       /* seat + 1 of the process that may ask others to move out */
	_Atomic int64_t floor_since;
	struct tenant tenant[MAX_TENANTS];
	struct seat seat[MAX_SEATS];
};
#define TURN_NS (20 * MS)             /* a turn begins with this much credit and is offered round after twice as much */
#define LEASE_NS (200 * MS)           /* a holder that says nothing for so long has lost the turn */
#define ACCEPT_NS (20 * MS)           /* who is handed the turn answers within this, or it is free */
#define ASKING_NS (100 * MS)          /* a waiter that has not asked for so long is not offered it */
#define SEAT_NS (30000 * MS)
#define PRESENT_NS (10000 * MS)       /* who has not been heard of for so long is not waited for */
#define TENANT_NS (3000 * MS)         /* a neighbour counts as there if it was seen within this */
int card_tenant(struct card *c, const char *container, unsigned share, bool lend, int64_t now);
int card_sit(struct card *c, unsigned tenant, uint64_t owner, int64_t now);
void card_keep(struct card *c, int seat, int64_t now);
void card_stand(struct card *c, int seat);
void card_renew(struct card *c, int64_t now);
int64_t card_credit(struct card *c, unsigned tenant, int64_t now);
void card_charge(struct card *c, unsigned tenant, int64_t ns);
/* Takes the turn if it is this seat's to take; else says in *wait how long to sleep before asking again. */
bool card_take(struct card *c, int seat, int64_t now, int64_t *wait);
/* Whether the holder should drain and give the turn back. */
bool card_should_yield(struct card *c, int seat, int64_t now, int64_t held);
bool card_holds(struct card *c, int seat);
/* Ends the turn; returns the seat it was handed to, or -1. */
int card_pass(struct card *c, int seat, int64_t now);
/* Whether another container is on this card. */
bool card_contended(struct card *c, unsigned tenant, int64_t now);

struct device;

/* ---- power.c: card time at clocks that the power limit would not allow for long costs more ---- */
unsigned power_price(double busy, double watts, double limit);
void power_look(struct device *d);

/* ---- session.c: this process under the library ---- */
struct gate;
struct device {
	CUdevice cu;
	int index;                    /* in the region */
	char uuid[48];
	_Atomic uint64_t limit;
	_Atomic unsigned share;
	_Atomic bool lend;
	struct card *card;
	_Atomic(struct gate *) gate;
	CUcontext primary;
	_Atomic int retained;         /* how often the primary context was asked for */
	_Atomic uint64_t changes;     /* allocations and frees so far */
	_Atomic int64_t managed;      /* managed allocations now held */
	_Atomic uint64_t lower, lower_at; /* a lower overhead seen once, and after how many changes */
};
struct session {
	struct region *region;
	_Atomic int process;          /* index in the region; -1 before it joined */
	int devices;
	struct device device[MAX_DEVICES];
	_Atomic bool swap, oversubscribe, control_any;
	_Atomic unsigned quantum_ms;
	char container[64];
};
extern struct session session;
bool session_start(void);
bool session_view(struct limits *l);
void session_reload(bool force);
struct device *device_of(CUdevice dev);
struct device *device_current(void);
int64_t now_ns(void);
uint64_t hash_text(const char *s);
bool thread_start(void *(*run)(void *), void *arg);
void sleep_ns(int64_t ns);
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *path_limits(void);
const char *path_region(void);
const char *path_control(void);
const char *path_cards(void);
const char *path_pool(void);

/* ---- ledger.c: what this process holds, by handle ---- */
enum holding_kind { HOLD_PTR, HOLD_ARRAY, HOLD_VMM, HOLD_MAP, HOLD_POOL, HOLD_GRAPH, HOLD_EXEC, HOLD_IPC, HOLD_EXTERNAL, HOLD_MANAGED, HOLD_OWN };
struct holding {
	uint64_t key;
	enum holding_kind kind;
	struct device *device;
	uint64_t bytes;
	uint64_t link;                /* of a map: its handle; of an import: its key; of a graph: its memory */
	CUcontext ctx;                /* it goes when this context goes */
	int refs, maps;
	void *own;                    /* swap.c's allocation */
	struct holding *next;
};
void ledger_lock(void);
void ledger_unlock(void);
struct holding *ledger_add(uint64_t key, enum holding_kind kind, struct device *d, uint64_t bytes);
struct holding *ledger_find(uint64_t key, enum holding_kind kind);
void ledger_drop(struct holding *h);
typedef void (*holding_visit)(struct holding *h, void *arg);
void ledger_each(holding_visit visit, void *arg);
void ledger_fork(int step);

/* ---- memory.c, vmm.c, pools.c, contexts.c, nvml.c: handlers ---- */
uint64_t charged_size(uint64_t bytes);
void give_back(struct holding *h);
void ipc_refresh(void);
bool charge(struct device *d, uint64_t bytes);
void refund(struct device *d, uint64_t bytes);
void pools_refresh(struct device *d, bool trim);
void overhead_refresh(struct device *d);
bool overhead_by_nvml(struct device *d, uint64_t *bytes);
void nvml_host_pid(unsigned pid);
bool nvml_power(struct device *d, double *joules, double *limit_watts);
void graph_captured(CUstream stream, CUgraph graph);

/* ---- gate.c: launches wait here for the process's turn; streams.c: what is in flight ---- */
struct gate {
	_Atomic bool on;
	_Atomic unsigned state;       /* GATE_*; futex */
	_Atomic unsigned want;        /* launches are waiting; futex */
	_Atomic unsigned inside;      /* launches between enter and leave */
	_Atomic uint64_t launches;
	_Atomic uint64_t waited_ns;   /* by launches, for the turn */
	_Atomic int64_t entered;      /* when the first that waited for this turn came in; 0 before */
	_Atomic int64_t closing_since, trickled;
	_Atomic bool tracked;
	unsigned tenant;
	int seat;
	uint64_t owner;
	struct device *device;
};
enum { GATE_CLOSED, GATE_OPEN, GATE_CLOSING };
void gate_reload(struct device *d);
/* What a call must undo when it leaves. */
enum { PASS_MOVING = 1, PASS_GATE = 2 };
int gate_enter(struct device *d, CUstream stream);
void gate_leave(struct device *d, CUstream stream, int pass);
void gate_fork_child(void);
/* Holds every gated and moving call of the process, and waits until none is inside; false after the deadline. */
bool gate_hold(int64_t deadline);
void gate_release(void);
int moving_enter(void);
void moving_leave(int pass);
int futex_wait(_Atomic unsigned *word, unsigned value, int64_t ns);
void futex_wake(_Atomic unsigned *word);

void stream_launched(struct gate *g, CUstream stream);
void stream_before_capture(CUstream stream);
void stream_forget(CUstream stream);
void context_forget(CUcontext ctx);
void capture_count(int delta);
bool stream_capturing(CUstream stream);
/* Whether all work seen on this gate's streams is done; marks what is not marked yet. */
bool streams_idle(struct gate *g);
void streams_fork_child(void);
static inline CUstream own_stream(CUstream s) { return s ? s : (CUstream)CU_STREAM_PER_THREAD; }

#define GATED(stream, call) do { \
	struct device *gated_ = device_current(); \
	CUstream stream_ = (stream); \
	int pass_ = gate_enter(gated_, stream_); \
	CUresult result_ = (call); \
	if (pass_) \
		gate_leave(gated_, stream_, pass_); \
	return result_; \
} while (0)
#define MOVING(call) do { \
	int pass_ = moving_enter(); \
	CUresult result_ = (call); \
	moving_leave(pass_); \
	return result_; \
} while (0)
#define PINNING(reason, call) do { \
	int pass_ = moving_enter(); \
	CUresult result_ = (call); \
	if (result_ == CUDA_SUCCESS) \
		swap_pin(reason); \
	moving_leave(pass_); \
	return result_; \
} while (0)

/* ---- blocks.c: allocations that can be moved; swap.c: out and in; hostpool.c: where they go ---- */
CUresult swap_alloc(struct device *d, CUdeviceptr *ptr, uint64_t bytes, bool *card_full);
void swap_free(struct holding *h);
bool swap_owns(CUdeviceptr ptr, CUdeviceptr *base, size_t *size);
void swap_pin(const char *reason);
struct swap_result { bool done; char why[160]; uint64_t bytes; double copy_s, total_s; };
/* Moves at least so many bytes to the host, and holds the process until all is back. */
void swap_out(uint64_t bytes, struct swap_result *r);
/* Brings everything back. Room is looked for first: without it nothing changes, and *missing says how much lacks. */
void swap_in(struct swap_result *r, uint64_t *missing);
void swap_prepare(uint64_t bytes, struct swap_result *r);
bool swap_is_out(void);
bool swap_is_busy(void);
void swap_fork_child(void);

bool host_prepare(uint64_t bytes);
bool host_take(uint64_t bytes, uint64_t *at);
/* The longest piece of [at, at+bytes) that lies in one stretch of memory. */
void *host_piece(uint64_t at, uint64_t bytes, uint64_t *length);
void host_reset(void);
uint64_t host_prepared(void);
void host_fork_child(void);

/* ---- residency.c: cards lent to more memory than they have ---- */
/* Asks a neighbour to make room; false if there is none that could. */
bool residency_ask(struct device *d, uint64_t bytes);
void residency_fed(struct device *d);
void residency_changed(struct device *d, int64_t delta);
void residency_serve(void);
void residency_want_in(void);

/* ---- control.c: the agent's line to this process ---- */
void control_start(void);
void control_fork_child(void);
int control_answer(const char *request, bool trusted, char *reply, size_t size);

#endif
