/* Buffers that copies go through: registered with the driver, so that the card reads and writes them itself. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "server.h"

#define MOST_BUFFERS 24 /* that are retained and registered; more are had for the moment */
#define PORTABLE 1

typedef CUresult (*register_fn)(void *, size_t, unsigned);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *unused[MOST_BUFFERS], *registered[MOST_BUFFERS];
static int unused_count, made;

static void *make(void)
{
	static register_fn pin;
	static bool looked;
	void *b = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (b == MAP_FAILED)
		return NULL;
	if (!looked) {
		pin = (register_fn)dlsym(RTLD_DEFAULT, "cuMemHostRegister_v2");
		looked = true;
	}
	if (made < MOST_BUFFERS) {
		registered[made++] = b;
		if (pin)
			pin(b, BUFFER_BYTES, PORTABLE); /* a copy works without, only slower */
	}
	return b;
}

void *buffer_get(void)
{
	void *b;

	pthread_mutex_lock(&lock);
	b = unused_count ? unused[--unused_count] : make();
	pthread_mutex_unlock(&lock);
	return b;
}

void buffer_put(void *buffer)
{
	bool stays = false;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < made; i++)
		stays |= registered[i] == buffer;
	if (stays)
		unused[unused_count++] = buffer;
	pthread_mutex_unlock(&lock);
	if (!stays)
		munmap(buffer, BUFFER_BYTES);
}
