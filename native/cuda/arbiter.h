/* Gives out the turns on a node's cards. */
#ifndef ELASTIC_ARBITER_H
#define ELASTIC_ARBITER_H

/* Serves the shares below a folder until the process ends; returns only if it cannot begin, and why on stderr. */
int arbiter_run(const char *folder);

#endif
