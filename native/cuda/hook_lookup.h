/* Which of our functions stands before which of the driver's. */
#ifndef ELASTIC_HOOK_LOOKUP_H
#define ELASTIC_HOOK_LOOKUP_H

/* Our function in place of the driver's of that name; NULL if it is not one of ours. */
void *hook_named(const char *symbol);

#endif
