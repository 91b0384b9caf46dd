/* Code that the program has loaded, so that it is sent once. Each session has its own: nobody learns here what others load. */
#include <stdlib.h>
#include "code.h"
#include "server.h"

#define MOST_CODES 256

/* Only the thread that reads calls loads code. What is in the list has been loaded, and is as long as it says. */
static struct retained { struct code_name name; bool named; void *code; uint64_t used; } list[MOST_CODES];
static unsigned count;
static size_t bytes;
static uint64_t uses;
static unsigned char key[CODE_KEY_BYTES];

void code_key(const unsigned char *session) { memcpy(key, session, sizeof key); }

static void drop_least_used(void)
{
	struct retained *least = list;

	for (unsigned i = 1; i < count; i++)
		if (list[i].used < least->used)
			least = &list[i];
	bytes -= least->name.size;
	free(least->code);
	*least = list[--count];
}

/* Most code is loaded once, so its hash is made when somebody asks for code of that size. */
static bool is(struct retained *k, const struct code_name *name)
{
	if (k->name.size != name->size)
		return false;
	if (!k->named)
		code_name(k->code, (size_t)k->name.size, key, &k->name);
	k->named = true;
	return !memcmp(&k->name, name, sizeof *name);
}

const void *code_find(const struct code_name *name)
{
	for (unsigned i = 0; i < count; i++)
		if (is(&list[i], name)) {
			list[i].used = ++uses;
			return list[i].code;
		}
	return NULL;
}

void code_retain(void *code, size_t size)
{
	if (!code_worth_retaining(size)) {
		free(code);
		return;
	}
	for (unsigned i = 0; i < count; i++)
		if (list[i].name.size == size && !memcmp(list[i].code, code, size)) {
			list[i].used = ++uses;
			free(code);
			return;
		}
	while (count == MOST_CODES || bytes + size > MOST_RETAINED_BYTES)
		drop_least_used();
	list[count++] = (struct retained){.name = {.size = size}, .code = code, .used = ++uses};
	bytes += size;
}
