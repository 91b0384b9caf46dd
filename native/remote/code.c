/* How long code is. The client trusts its own program; the server knows how much has come, and looks no further. */
#include <elf.h>
#include <stdint.h>
#include <string.h>
#include "code.h"

#define FATBIN_WRAPPER 0x466243b1u
#define FATBIN 0xba55ed50u

struct fatbin_wrapper { uint32_t magic, version; const void *data; void *unused; };
struct fatbin_header { uint32_t magic; uint16_t version, header; uint64_t size; };

/* The end of a part of a file; too large a number where it overflows. */
static uint64_t end_of(uint64_t from, uint64_t size) { return size > UINT64_MAX - from ? UINT64_MAX : from + size; }
static uint64_t max(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t elf_size(const char *code, uint64_t most)
{
	Elf64_Ehdr e;
	Elf64_Shdr s;
	uint64_t n, sections;

	if (most < sizeof e)
		return 0;
	memcpy(&e, code, sizeof e);
	sections = end_of(e.e_shoff, (uint64_t)e.e_shnum * e.e_shentsize);
	n = max(max(sizeof e, end_of(e.e_phoff, (uint64_t)e.e_phnum * e.e_phentsize)), sections);
	if (sections > most || (e.e_shnum && e.e_shentsize < sizeof s))
		return 0;
	for (uint64_t i = 0; i < e.e_shnum; i++) {
		memcpy(&s, code + e.e_shoff + i * e.e_shentsize, sizeof s);
		if (s.sh_type != SHT_NOBITS)
			n = max(n, end_of(s.sh_offset, s.sh_size));
	}
	return n;
}

static uint64_t fatbin_size(const char *code, uint64_t most)
{
	struct fatbin_header h;

	if (most < sizeof h)
		return 0;
	memcpy(&h, code, sizeof h);
	return end_of(h.header, h.size);
}

size_t code_size(const void *code, size_t most)
{
	const char *c = code;
	uint32_t magic = 0;
	uint64_t n;

	if (most >= sizeof magic)
		memcpy(&magic, c, sizeof magic);
	if (magic == FATBIN)
		n = fatbin_size(c, most);
	else if (most >= SELFMAG && !memcmp(c, ELFMAG, SELFMAG))
		n = elf_size(c, most);
	else /* text, with the zero at its end */
		n = most && (*c == '.' || *c == '/' || *c == '\n') ? (uint64_t)strnlen(c, most) + 1 : 0;
	return n <= most ? (size_t)n : 0;
}

const void *code_begins(const void *image)
{
	uint32_t magic;

	memcpy(&magic, image, sizeof magic);
	return magic == FATBIN_WRAPPER ? ((const struct fatbin_wrapper *)image)->data : image;
}
