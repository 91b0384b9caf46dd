/* A driver for tests: memory is host memory, kernels are C functions, time on the card is added up per stream. */
#ifndef STUB_H
#define STUB_H
#include "../driver_types.h"

/* What is not said of a kernel is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
/* What a CUfunction points to. */
struct stub_kernel {
	int64_t ns;                  /* time it takes on the card */
	void (*body)(void **params); /* what it does; may be NULL */
	struct stub_meeting *meeting; /* it ends when the others have launched theirs as often; may be NULL */
	int rank, ranks;
};
/* Kernels of several processes that wait for each other; in memory that they share. */
struct stub_meeting { _Atomic int launched[8]; };

/* Shared by all processes that name the same STUB_CARD file. */
#define STUB_PROCESSES 512
#define STUB_MEMORIES 1024
#define STUB_SHARERS 8
struct stub_card {
	_Atomic uint64_t pid[STUB_PROCESSES];
	_Atomic uint64_t used[STUB_PROCESSES][4];
	_Atomic int mps[STUB_PROCESSES]; /* it is a client of MPS */
	_Atomic uint64_t lock; /* of the memory below: who has it, or had it when it was killed */
	/* Memory with a handle: it is there while a process has a handle or a mapping of it. Who made it is seen to use it. */
	struct stub_memory { _Atomic uint64_t id, bytes, maker; _Atomic int dev; struct { _Atomic uint64_t pid; _Atomic int refs; } by[STUB_SHARERS]; } memory[STUB_MEMORIES];
};
/* Memory that another process gave, by its file; 0 if it is not there. */
int stub_memory_has(uint64_t id);
void stub_memory_take(uint64_t id, uint64_t bytes, int dev);
void stub_memory_drop(uint64_t id);
void stub_memory_forget(void); /* all that this process had before it became another program */
struct stub_card *stub_card(void);
uint64_t stub_card_used(int dev);
uint64_t stub_card_size(void);
int stub_device_count(void);
void stub_uuid(int dev, unsigned char *bytes);
#endif
