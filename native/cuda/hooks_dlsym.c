/* Programs that look the driver up by name get our functions too. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include "constants.h"
#include "hook_lookup.h"
#include "libc_symbols.h"

typedef void *(*dlsym_fn)(void *, const char *);
typedef void *(*dlvsym_fn)(void *, const char *, const char *);

static void *our_function(const char *name)
{
	if (!strcmp(name, "dlsym"))
		return (void *)dlsym;
	if (!strcmp(name, "dlvsym"))
		return (void *)dlvsym;
	return hook_named(name);
}

static void *libc_cached(_Atomic(void *) *slot, const char *name)
{
	void *p = atomic_load(slot);
	if (!p)
		atomic_store(slot, p = libc_function(name));
	return p;
}

/* RTLD_NEXT means "after the caller", which libc reads off the return address: both functions must end in a jump. */
__attribute__((optimize("O2"))) EXPORT void *dlsym(void *handle, const char *name)
{
	static _Atomic(void *) real;
	void *hook = our_function(name);
	if (hook)
		return hook;
	return ((dlsym_fn)libc_cached(&real, "dlsym"))(handle, name);
}

__attribute__((optimize("O2"))) EXPORT void *dlvsym(void *handle, const char *name, const char *version)
{
	static _Atomic(void *) real;
	void *hook = our_function(name);
	if (hook && strcmp(name, "dlsym") && strcmp(name, "dlvsym"))
		return hook;
	return ((dlvsym_fn)libc_cached(&real, "dlvsym"))(handle, name, version);
}
