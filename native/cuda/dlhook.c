/* Programs that look the driver up by name get our functions too. */
#include <dlfcn.h>
#include <string.h>
#include "elastic.h"

typedef void *(*dlsym_fn)(void *, const char *);
typedef void *(*dlvsym_fn)(void *, const char *, const char *);

static void *hook_named(const char *name)
{
	int id;

	if (!strcmp(name, "dlsym"))
		return (void *)dlsym;
	if (!strcmp(name, "dlvsym"))
		return (void *)dlvsym;
	id = entry_named(name);
	return id >= 0 && entries[id].hook && entry_real(id) ? entries[id].hook : NULL;
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
	void *hook = hook_named(name);
	if (hook)
		return hook;
	return ((dlsym_fn)libc_cached(&real, "dlsym"))(handle, name);
}

__attribute__((optimize("O2"))) EXPORT void *dlvsym(void *handle, const char *name, const char *version)
{
	static _Atomic(void *) real;
	void *hook = hook_named(name);
	if (hook && strcmp(name, "dlsym") && strcmp(name, "dlvsym"))
		return hook;
	return ((dlvsym_fn)libc_cached(&real, "dlvsym"))(handle, name, version);
}
