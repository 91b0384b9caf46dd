/* All processes of a container are held back before the first of them moves; the agent asks each for it. */
#ifndef ELASTIC_HOLD_H
#define ELASTIC_HOLD_H

#include <stdbool.h>

/*
 * Calls that touch memory wait from now on, until hold_end. True when nothing is in flight here. With step, a process that
 * has nothing in flight lets one call through: another may wait for it.
 */
bool hold_begin(bool step);
void hold_end(void);
/* The agent has moved this process out: it comes back when the agent says so, by hold_end, and not by itself. */
void hold_out(void);
bool hold_is_out(void);
/* The agent may have died: whoever it has not moved, and not asked for long, goes on. */
void hold_look(void);
void hold_fork_child(void);

#endif
