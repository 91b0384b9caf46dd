/* Gives out the turns on a node's cards. */
#ifndef ELASTIC_ARBITER_H
#define ELASTIC_ARBITER_H

/* Serves the shares below a folder until the process ends; returns only if it cannot begin, and why on stderr. */
int arbiter_run(const char *folder);
/* Whether an arbiter serves that folder and gets on; 0 if so, else 1 and why on stderr. */
int arbiter_check(const char *folder);

#endif
