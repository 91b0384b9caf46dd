/* Memory of other processes of the container that this one has mapped; it moves with them (shared_exports.h). */
#ifndef ELASTIC_SHARED_IMPORTS_H
#define ELASTIC_SHARED_IMPORTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "driver_types.h"

struct block;
/*
 * What one process gives to another: a handle of 64 bytes, or the content of a file whose descriptor it passes on. Anybody
 * may write one: all of it is asked of the process that it names, or compared with what that answers.
 */
struct shared_name {
	uint64_t magic, id, secret;
	uint32_t pid, program;  /* program: virtual memory that the program manages itself */
	uint64_t offset, size;  /* of an allocation in its block */
	uint64_t unused[2];
};
#define SHARED_MAGIC 0x454c41532d495043 /* ELAS-IPC */
_Static_assert(sizeof(struct shared_name) == sizeof(CUipcMemHandle), "a name is a handle");
bool shared_is_name(const void *bytes, struct shared_name *name);

/* They may fail for now: the memory moves, or its process does not answer. Nothing is held then, and they can be asked again. */
enum shared_when { SHARED_NOW, SHARED_MOVES, SHARED_SILENT };
CUresult shared_open(const struct shared_name *n, CUdeviceptr *ptr, enum shared_when *when);
/* Virtual memory that the program manages itself: adopt gives it another handle on the block, with the lock of blocks.h held. */
typedef bool (*adopt_fn)(struct block *b, CUmemHandle *handle);
CUresult shared_import(const struct shared_name *n, adopt_fn adopt, CUmemHandle *handle, enum shared_when *when);
/* False if nothing of another process is opened at that address. */
bool shared_close(CUdeviceptr ptr);
bool shared_range(CUdeviceptr ptr, CUdeviceptr *base, size_t *size);
void shared_forget_context(CUcontext ctx);
/* The name by which this process knows a block that it has imported. */
void shared_import_name(const struct block *b, struct shared_name *n);
/* The program has given all of it back; with the lock of blocks.h. */
void shared_import_gone(struct block *b);
/* Tells the owners of what is gone; without any lock held. */
void shared_imports_settle(void);
/* The same, and charges here what lost its owner. */
void shared_imports_refresh(void);

/*
 * Whether anything of that process is mapped here; it is let go of by the second. The calls are held back meanwhile. By its
 * secret, too: a pid may be that of another process now.
 */
bool shared_imports_know(pid_t owner, uint64_t secret); /* or was, as far as that process can know */
bool shared_imports_of(pid_t owner, uint64_t secret);
void shared_imports_leave(pid_t owner, uint64_t secret);
bool shared_imports_away(void);
/* Asks for what is away, and maps it again; true when nothing is away any more. */
bool shared_imports_return(bool wanted);
/* Why this process cannot be moved for the sake of what it has of others; NULL: it can. */
const char *shared_imports_refusal(void);
void shared_imports_fork_child(void);

#endif
