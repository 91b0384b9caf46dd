/* Finds functions of libc by hand: dlsym is ours in this process, and must not find itself. */
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include "libc_symbols.h"

struct search {
	const char *name;
	void *found;
};

static const void *dynamic_address(const struct dl_phdr_info *info, ElfW(Addr) value)
{
	/* glibc relocates these entries in place, other loaders do not. */
	return (const void *)(value < info->dlpi_addr ? value + info->dlpi_addr : value);
}

static uint32_t gnu_hash(const char *s)
{
	uint32_t h = 5381;
	for (; *s; s++)
		h = h * 33 + (unsigned char)*s;
	return h;
}

static void *lookup(ElfW(Addr) base, const ElfW(Sym) *symbols, const char *strings, const uint32_t *table, const char *name)
{
	uint32_t buckets = table[0], first = table[1], bloom = table[2], hash = gnu_hash(name);
	const uint32_t *bucket = table + 4 + bloom * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
	uint32_t i = bucket[hash % buckets];

	if (i < first)
		return NULL;
	for (;; i++) {
		uint32_t h = chain[i - first];
		if ((h | 1) == (hash | 1) && symbols[i].st_shndx != SHN_UNDEF && !strcmp(strings + symbols[i].st_name, name))
			return (void *)(base + symbols[i].st_value);
		if (h & 1)
			return NULL;
	}
}

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;
	const ElfW(Dyn) *dynamic = NULL;
	const ElfW(Sym) *symbols = NULL;
	const char *strings = NULL;
	const uint32_t *table = NULL;
	(void)size;

	if (!strstr(info->dlpi_name, "/libc.so") && !strstr(info->dlpi_name, "/libc-") &&
	    !strstr(info->dlpi_name, "/libdl") && !strstr(info->dlpi_name, "/libpthread"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		if (dynamic->d_tag == DT_SYMTAB)
			symbols = dynamic_address(info, dynamic->d_un.d_ptr);
		else if (dynamic->d_tag == DT_STRTAB)
			strings = dynamic_address(info, dynamic->d_un.d_ptr);
		else if (dynamic->d_tag == DT_GNU_HASH)
			table = dynamic_address(info, dynamic->d_un.d_ptr);
	}
	if (symbols && strings && table)
		s->found = lookup(info->dlpi_addr, symbols, strings, table, s->name);
	return s->found != NULL;
}

void *libc_function(const char *name)
{
	struct search s = {name, NULL};
	dl_iterate_phdr(visit, &s);
	return s.found;
}

void *real_dlsym(void *handle, const char *name)
{
	static _Atomic(void *) fn;
	void *p = atomic_load(&fn);
	if (!p)
		atomic_store(&fn, p = libc_function("dlsym"));
	return p ? ((void *(*)(void *, const char *))p)(handle, name) : NULL;
}

void *real_dlopen(const char *name, int flags)
{
	static _Atomic(void *) fn;
	void *p = atomic_load(&fn);
	if (!p)
		atomic_store(&fn, p = libc_function("dlopen"));
	return p ? ((void *(*)(const char *, int))p)(name, flags) : NULL;
}
