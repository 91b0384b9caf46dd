/* Clock, threads, futexes and hashes. */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "libc_symbols.h"
#include "system.h"

int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void sleep_ns(int64_t ns)
{
	struct timespec t = {ns / 1000000000, ns % 1000000000};
	nanosleep(&t, NULL);
}

int futex_wait(_Atomic unsigned *word, unsigned value, int64_t ns)
{
	struct timespec t = {ns / 1000000000, ns % 1000000000};
	return (int)syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

void futex_wake(_Atomic unsigned *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint64_t hash_bytes(const void *bytes, size_t size)
{
	const unsigned char *p = bytes;
	uint64_t h = 0xcbf29ce484222325;

	for (size_t i = 0; i < size; i++)
		h = (h ^ p[i]) * 0x100000001b3;
	return h ? h : 1;
}

uint64_t hash_text(const char *s)
{
	return hash_bytes(s, strlen(s));
}

/*
 * Threads of ours take no signals: those belong to the program. pthread_create is looked up, for where it lives
 * differs between versions of libc and this library must load with all of them.
 */
bool thread_start(void *(*run)(void *), void *arg)
{
	typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
#ifdef ELASTICGPU_TESTING
	create_fn create = pthread_create; /* the sanitizers must see it */
#else
	create_fn create = (create_fn)real_dlsym(NULL, "pthread_create");
#endif
	pthread_attr_t detached;
	sigset_t all, before;
	pthread_t t;
	bool ok;

	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	ok = create && create(&t, &detached, run, arg) == 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&detached);
	return ok;
}
