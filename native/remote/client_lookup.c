/* Which function is which: programs ask by name and version, and get ours or nothing. */
#include "client_parts.h"

#define ROW(symbol, base, since, per_thread) extern char address_##symbol[] __asm__(#symbol);
#include "client_rows.h"
#undef ROW

static const struct { const char *base; int since, per_thread; void *address; } rows[] = {
#define ROW(symbol, base, since, per_thread) {#base, since, per_thread, address_##symbol},
#include "client_rows.h"
};

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, unsigned long long flags, int *status)
{
	int best = -1, per_thread = (flags & CU_GET_PROC_PER_THREAD) != 0;

	if (!symbol || !pfn)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++)
		if (!strcmp(rows[i].base, symbol) && rows[i].since <= version && rows[i].per_thread <= per_thread &&
		    (best < 0 || rows[i].since > rows[best].since || (rows[i].since == rows[best].since && rows[i].per_thread > rows[best].per_thread)))
			best = i;
	*pfn = best >= 0 ? rows[best].address : NULL;
	if (status)
		*status = best < 0;
	return best >= 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, unsigned long long flags)
{
	return cuGetProcAddress_v2(symbol, pfn, version, flags, NULL);
}
