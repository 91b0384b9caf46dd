/* The steps of an allocation whose memory stays where it is. */
#ifndef ELASTIC_TAKE_H
#define ELASTIC_TAKE_H

#include "memory_budget.h"
#include "memory_calls.h"
#include "start.h"

/* Charge, call, and write down or give back: the steps of every allocation. */
#define TAKE(key, kind, size, call) do { \
	struct device *d_ = device_ready(); \
	uint64_t size_ = (size); \
	CUresult r_; \
	if (!d_) \
		return (call); \
	int pass_ = memory_call_enter(); \
	if (!memory_charge(d_, size_)) { \
		memory_call_leave(pass_); \
		return CUDA_ERROR_OUT_OF_MEMORY; \
	} \
	r_ = (call); \
	if (r_ == CUDA_SUCCESS) \
		holding_note((uint64_t)(uintptr_t)(key), kind, d_, size_); \
	else \
		memory_refund(d_, size_); \
	memory_call_leave(pass_); \
	return r_; \
} while (0)

#endif
