/*
 * Which of our functions stands before which of the driver's. Programs ask cuGetProcAddress for functions, also for
 * cuGetProcAddress itself: so it is here, beside the table.
 */
#include <stdbool.h>
#include <string.h>
#include "constants.h"
#include "driver_symbols.h"
#include "hook_lookup.h"
#include "hook_table.h"

void *hook_named(const char *symbol)
{
	if (strncmp(symbol, "cu", 2) && strncmp(symbol, "nvml", 4))
		return NULL;
	for (int i = 0; i < DRIVER_SYMBOLS; i++)
		if (!strcmp(driver_symbols[i].symbol, symbol))
			return hooks[i] && driver_real(i) ? hooks[i] : NULL;
	return NULL;
}

/* The hook for what cuGetProcAddress found at `found`, or NULL if it is not one of ours. */
static void *hook_for_address(const char *base, void *found, int version, bool per_thread)
{
	int best = -1;

	for (int i = 0; i < DRIVER_SYMBOLS; i++) {
		struct driver_symbol *s = &driver_symbols[i];
		if (strcmp(s->base, base))
			continue;
		if (driver_real(i) == found)
			return hooks[i];
		if (s->per_thread == per_thread && s->since <= version && (best < 0 || s->since >= driver_symbols[best].since))
			best = i;
	}
	/* Some functions have another name since some version: cuGraphInstantiate is cuGraphInstantiateWithFlags since 12.0. */
	for (int i = 0; best >= 0 && i < DRIVER_SYMBOLS; i++)
		if (hooks[i] && driver_real(i) == found)
			return hooks[i];
	return best < 0 ? NULL : hooks[best];
}

static CUresult found(CUresult r, const char *symbol, void **pfn, int version, uint64_t flags)
{
	void *hook;

	if (r != CUDA_SUCCESS || !pfn || !*pfn || !symbol)
		return r;
	hook = hook_for_address(symbol, *pfn, version, flags & CU_GET_PROC_PER_THREAD);
	if (hook)
		*pfn = hook;
	return r;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags)
{
	fn_cuGetProcAddress real = real_cuGetProcAddress;
	return real ? found(real(symbol, pfn, version, flags), symbol, pfn, version, flags) : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
	fn_cuGetProcAddress_v2 real = real_cuGetProcAddress_v2;
	return real ? found(real(symbol, pfn, version, flags, status), symbol, pfn, version, flags) : CUDA_ERROR_NOT_FOUND;
}
