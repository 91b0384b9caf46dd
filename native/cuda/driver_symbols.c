/* Finds the real functions behind the ones this library exports. */
#include <dlfcn.h>
#include <stdbool.h>
#include "driver_symbols.h"
#include "libc_symbols.h"

struct driver_symbol driver_symbols[DRIVER_SYMBOLS] = {
#include "driver_names.h"
};

/* The file this code is in, from its first byte to its last; the linker knows. */
extern const char __ehdr_start[] __attribute__((visibility("hidden"))), _end[] __attribute__((visibility("hidden")));

static bool ours(const void *p)
{
	return (const char *)p >= __ehdr_start && (const char *)p < _end;
}

void *driver_resolve(int id)
{
	static _Atomic(void *) libraries[2];
	bool nvml = driver_symbols[id].symbol[0] == 'n';
	void *library = atomic_load(&libraries[nvml]), *p;

	if (!library) {
		library = real_dlopen(nvml ? "libnvidia-ml.so.1" : "libcuda.so.1", RTLD_LAZY);
		if (!library)
			return NULL;
		atomic_store(&libraries[nvml], library);
	}
	p = real_dlsym(library, driver_symbols[id].symbol);
	if (ours(p))
		return NULL; /* found ourselves: the driver does not have it */
	if (p)
		atomic_store_explicit(&driver_symbols[id].real, p, memory_order_relaxed);
	return p;
}
