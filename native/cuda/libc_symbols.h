/* Functions of libc, found past the ones this library overrides. */
#ifndef ELASTIC_LIBC_SYMBOLS_H
#define ELASTIC_LIBC_SYMBOLS_H

/* A function of libc or libdl past our own overrides of dlsym. */
void *libc_function(const char *name);
void *real_dlsym(void *handle, const char *name);
void *real_dlopen(const char *name, int flags);

#endif
