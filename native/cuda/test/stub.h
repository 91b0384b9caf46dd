/* A driver for tests: memory is host memory, kernels are C functions, time on the card is added up per stream. */
#ifndef STUB_H
#define STUB_H
#include "../driver_types.h"

/* What a CUfunction points to. */
struct stub_kernel {
	int64_t ns;                  /* time it takes on the card */
	void (*body)(void **params); /* what it does; may be NULL */
};

/* Shared by all processes that name the same STUB_CARD file. */
#define STUB_PROCESSES 512
struct stub_card {
	_Atomic uint64_t pid[STUB_PROCESSES];
	_Atomic uint64_t used[STUB_PROCESSES][4];
	_Atomic int mps[STUB_PROCESSES]; /* it is a client of MPS */
};
struct stub_card *stub_card(void);
uint64_t stub_card_used(int dev);
uint64_t stub_card_size(void);
int stub_device_count(void);
void stub_uuid(int dev, unsigned char *bytes);
#endif
