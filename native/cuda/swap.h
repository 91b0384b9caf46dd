/* Device memory leaves the card and comes back. */
#ifndef ELASTIC_SWAP_H
#define ELASTIC_SWAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "driver_types.h"
#include "memory_calls.h"

extern _Atomic int64_t swap_quiet_ns; /* how long calls into the driver may take to end; those who share memory have a sixth more to answer */
/* From now on this process cannot be moved, for that reason. */
void swap_pin(const char *reason);
struct swap_result { bool done; char why[160]; uint64_t bytes; double copy_s, total_s; };
/* Moves at least so many bytes to the host, and holds the process until all is back. */
void swap_out(uint64_t bytes, struct swap_result *r);
/* Brings everything back. If the card has too little free memory nothing changes, and *missing says how much. */
void swap_in(struct swap_result *r, uint64_t *missing);
/* Lets go of what that process shares with this one, and holds calls back until it is there again; NULL, or why not. */
const char *swap_leave(pid_t owner, uint64_t secret);
/* It may be there again; and the look whether it is, for the control thread. */
void swap_returns(void);
void swap_return(void);
void swap_prepare(uint64_t bytes, struct swap_result *r);
/* Why this process cannot be moved now; NULL: it can, as far as is known before it is tried. */
const char *swap_refusal(void);
bool swap_is_out(void);
/* Something of ours, or of another process's that is mapped here, is not on the card. */
bool swap_is_away(void);
bool swap_is_busy(void);
/* Between the two nothing moves, nor does anybody wait for it: that context ends, and what moves would be copied in it. */
void swap_pause(CUcontext ends);
void swap_resume(void);
void swap_fork_child(void);

#define PINNED_CALL(reason, call) do { \
	int pass_ = memory_call_enter(); \
	CUresult result_ = (call); \
	if (result_ == CUDA_SUCCESS) \
		swap_pin(reason); \
	memory_call_leave(pass_); \
	return result_; \
} while (0)

#endif
