/* How long code is, and its name. The client trusts its own program; the server knows how much has come, and looks no further. */
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

/* ---- names: SipHash-1-3 with a hash of 128 bits, as others use it where a stranger chooses what is hashed ---- */

static uint64_t turn(uint64_t v, int by) { return v << by | v >> (64 - by); }

static inline void mix(uint64_t v[4], int rounds)
{
	while (rounds--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = turn(v[1], 13) ^ v[0];
		v[3] = turn(v[3], 16) ^ v[2];
		v[0] = turn(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = turn(v[1], 17) ^ v[2];
		v[3] = turn(v[3], 21) ^ v[0];
		v[2] = turn(v[2], 32);
	}
}

static inline void absorb(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	mix(v, 1);
	v[0] ^= word;
}

void code_name(const void *code, size_t size, const unsigned char *key, struct code_name *name)
{
	const char *c = code;
	uint64_t k[2], word;

	memcpy(k, key, sizeof k);
	uint64_t v[4] = {k[0] ^ 0x736f6d6570736575, k[1] ^ 0x646f72616e646f6d ^ 0xee, k[0] ^ 0x6c7967656e657261, k[1] ^ 0x7465646279746573};
	for (size_t left = size; left >= sizeof word; left -= sizeof word, c += sizeof word) {
		memcpy(&word, c, sizeof word);
		absorb(v, word);
	}
	word = 0;
	memcpy(&word, c, size % sizeof word);
	absorb(v, word | (uint64_t)size << 56);
	v[2] ^= 0xee;
	mix(v, 3);
	name->size = size;
	name->hash[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
	v[1] ^= 0xdd;
	mix(v, 3);
	name->hash[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}
