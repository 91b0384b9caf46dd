/*
 * Whether a program works in short steps: it launches, waits for the result, and launches again. Such a program serves
 * somebody who waits, as a rule, and the arbiter gives it its turns sooner and shorter.
 */
#ifndef ELASTIC_STEPS_H
#define ELASTIC_STEPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "constants.h"

#define STEP_NS (4 * MS)        /* a step that takes no longer is short */
#define LONG_STEP_NS (40 * MS)  /* work that nobody has waited for after so long is none */
#define SHORT_STEPS 4           /* so many more short ones than long ones, of which each counts as so many */
#define SHORT_STEPS_MOST 8

struct steps {
	_Atomic int64_t begun;    /* when its first launch was made; 0: none was since the program waited */
	_Atomic int64_t waited;   /* for the turn by then, in all */
	_Atomic int score;
};
void step_begin(struct steps *s, int64_t now, int64_t waited);
void step_end(struct steps *s, int64_t now, int64_t waited);
/* Nobody waits for the result: what goes on for long is no step. */
void step_look(struct steps *s, int64_t now, int64_t waited);
static inline bool steps_begun(struct steps *s) { return atomic_load_explicit(&s->begun, memory_order_relaxed) != 0; }
static inline bool steps_short(struct steps *s) { return atomic_load_explicit(&s->score, memory_order_relaxed) >= SHORT_STEPS; }

#endif
