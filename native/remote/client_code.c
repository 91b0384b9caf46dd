/* Code and launches. How a kernel's parameters lie in memory, the server's driver says. */
#include <stdlib.h>
#include "client_parts.h"
#include "code.h"

#define MOST_PARAM_BYTES ((uint32_t)32768)

/* Options whose value is a number are carried. The compiler's words stay with the server: their buffers come back empty. */
static bool take_option(struct wire_load *l, int option, void **value)
{
	enum { MAX_REGISTERS = 0, INFO_LOG = 3, INFO_LOG_SIZE, ERROR_LOG, ERROR_LOG_SIZE, OPTIMIZATION, FROM_CONTEXT, TARGET, FALLBACK, DEBUG_INFO, VERBOSE, LINE_INFO, CACHE_MODE };

	switch (option) {
	case INFO_LOG: case ERROR_LOG:
		if (*value)
			*(char *)*value = 0;
		return true;
	case INFO_LOG_SIZE: case ERROR_LOG_SIZE:
		*value = NULL;
		return true;
	case MAX_REGISTERS: case OPTIMIZATION: case FROM_CONTEXT: case TARGET: case FALLBACK: case DEBUG_INFO: case VERBOSE: case LINE_INFO: case CACHE_MODE:
		if (l->options == MOST_OPTIONS)
			return false;
		l->option[l->options] = option;
		l->value[l->options++] = (uint64_t)(uintptr_t)*value;
		return true;
	default:
		return false;
	}
}

/* Sizes of the code that this session has sent. Most code is loaded once, and needs no hash; what has a size that was sent may be the same. */
#define MOST_SENT 256
static struct { pthread_mutex_t lock; size_t size[MOST_SENT]; unsigned next; } sent = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Whether code of that size was sent; if not and remember, it is from now on. */
static bool was_sent(size_t size, bool remember)
{
	bool found = false;

	pthread_mutex_lock(&sent.lock);
	for (unsigned i = 0; i < MOST_SENT && !found; i++)
		found = sent.size[i] == size;
	if (!found && remember)
		sent.size[sent.next++ % MOST_SENT] = size;
	pthread_mutex_unlock(&sent.lock);
	return found;
}

/* Loads code that the server may have, or sends it. */
static CUresult load(const struct wire_load *l, const void *code, size_t size, uint64_t *id)
{
	struct { struct wire_load l; struct code_name name; } again = {.l = *l};
	bool worth = code_worth_retaining(size);
	CUresult r = CODE_UNKNOWN;

	if (worth && was_sent(size, false)) {
		code_name(code, size, client_session(), &again.name);
		r = call_sync(CALL_load_again, &again, sizeof again, id, sizeof *id);
	}
	if (r == CODE_UNKNOWN) {
		r = call_sync_lending(CALL_load, l, sizeof *l, code, size, id, sizeof *id);
		if (r == CUDA_SUCCESS && worth)
			was_sent(size, true);
	}
	return r;
}

CUresult cuModuleLoadDataEx(CUmodule *mod, void *image, unsigned count, void *options, void *values)
{
	struct wire_load l = {0};
	const void *code;
	uint64_t id;
	size_t size;
	CUresult r;

	if (!mod || !image)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++)
		if (!take_option(&l, ((int *)options)[i], &((void **)values)[i]))
			return CUDA_ERROR_NOT_SUPPORTED;
	code = code_begins(image);
	size = code_size(code, MOST_PAYLOAD - sizeof l);
	if (!size)
		return CUDA_ERROR_NOT_SUPPORTED;
	r = load(&l, code, size, &id);
	if (r == CUDA_SUCCESS)
		*mod = (void *)(uintptr_t)id;
	return r;
}
CUresult cuModuleLoadData(CUmodule *mod, void *image) { return cuModuleLoadDataEx(mod, image, 0, NULL, NULL); }
CUresult cuModuleLoadFatBinary(CUmodule *mod, void *image) { return cuModuleLoadDataEx(mod, image, 0, NULL, NULL); }

/* A module's function is one object, however often it is asked for. They are few, and live as long as the program. */
static struct { pthread_mutex_t lock; struct function **list; size_t count, most; } functions = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Another session has other functions by the same numbers. */
void code_forked(void)
{
	pthread_mutex_init(&sent.lock, NULL);
	memset(sent.size, 0, sizeof sent.size);
	pthread_mutex_init(&functions.lock, NULL);
	functions.count = 0;
}

static struct function *known_function(struct function *f)
{
	struct function *found = NULL;

	pthread_mutex_lock(&functions.lock);
	for (size_t i = 0; i < functions.count && !found; i++)
		if (functions.list[i]->id == f->id)
			found = functions.list[i];
	if (!found && functions.count == functions.most) {
		size_t more = functions.most ? 2 * functions.most : 64;
		struct function **list = realloc(functions.list, more * sizeof *list);
		if (list) {
			functions.list = list;
			functions.most = more;
		}
	}
	if (!found && functions.count < functions.most)
		found = functions.list[functions.count++] = f;
	pthread_mutex_unlock(&functions.lock);
	return found;
}

CUresult cuModuleGetFunction(CUfunction *fn, CUmodule mod, const char *name)
{
	struct { struct wire_function f; struct wire_param param[MOST_PARAMS]; } *back;
	struct writer w = {.size = 0};
	uint64_t id = id_of(mod);
	struct function *f, *known = NULL;
	CUresult r;

	writer_put(&w, &id, sizeof id);
	if (!fn || !name || !writer_text(&w, name))
		return CUDA_ERROR_INVALID_VALUE;
	back = malloc(sizeof *back);
	r = back ? call_sync(CALL_function, w.bytes, w.size, back, sizeof *back) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS && (back->f.count > MOST_PARAMS || !(f = calloc(1, sizeof *f + back->f.count * sizeof *f->param))))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS) {
		f->id = back->f.id;
		f->count = back->f.count;
		for (uint32_t i = 0; i < f->count; i++) {
			f->param[i].offset = back->param[i].offset;
			f->param[i].size = back->param[i].size;
			if (f->bytes < back->param[i].offset + back->param[i].size)
				f->bytes = back->param[i].offset + back->param[i].size;
		}
		known = f->bytes <= MOST_PARAM_BYTES ? known_function(f) : NULL;
		if (known != f)
			free(f);
		r = known ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		*fn = known;
	}
	free(back);
	return r;
}

CUresult cuFuncGetParamInfo(CUfunction fn, size_t index, size_t *offset, size_t *size)
{
	struct function *f = fn;

	if (!f || !offset || index >= f->count)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = f->param[index].offset;
	if (size)
		*size = f->param[index].size;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *bytes, CUmodule mod, const char *name)
{
	struct { uint64_t ptr, bytes; } back;
	struct writer w = {.size = 0};
	uint64_t id = id_of(mod);
	CUresult r;

	writer_put(&w, &id, sizeof id);
	if (!name || !writer_text(&w, name))
		return CUDA_ERROR_INVALID_VALUE;
	r = call_sync(CALL_global, w.bytes, w.size, &back, sizeof back);
	if (r == CUDA_SUCCESS && ptr)
		*ptr = back.ptr;
	if (r == CUDA_SUCCESS && bytes)
		*bytes = back.bytes;
	return r;
}

/* The parameters as they lie in memory, from pointers to each or from a buffer of the program's. */
static bool pack(const struct function *f, void **params, void **extra, unsigned char *to)
{
	enum { END, BUFFER, SIZE };
	void *buffer = NULL;
	size_t size = 0;

	if (params || !f->count) {
		for (uint32_t i = 0; i < f->count; i++)
			memcpy(to + f->param[i].offset, params[i], f->param[i].size);
		return true;
	}
	for (int i = 0; extra && extra[i] != (void *)END; i += 2) {
		if (extra[i] == (void *)BUFFER)
			buffer = extra[i + 1];
		else if (extra[i] == (void *)SIZE)
			size = *(size_t *)extra[i + 1];
		else
			return false;
	}
	if (!buffer || size > ROUND_UP(f->bytes, 16) || size < f->bytes)
		return false;
	memcpy(to, buffer, f->bytes);
	return true;
}

static CUresult launch(const struct function *f, struct wire_launch l, void **params, void **extra)
{
	unsigned char all[sizeof l + MOST_PARAM_BYTES];

	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	l.function = f->id;
	memcpy(all, &l, sizeof l);
	memset(all + sizeof l, 0, f->bytes);
	if (!pack(f, params, extra, all + sizeof l))
		return CUDA_ERROR_INVALID_VALUE;
	return call_async(CALL_launch, all, sizeof l + f->bytes);
}

CUresult cuLaunchKernel(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	return launch(fn, (struct wire_launch){.stream = id_of(stream), .grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared = shared}, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params)
{
	return launch(fn, (struct wire_launch){.stream = id_of(stream), .grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared = shared, .cooperative = 1}, params, NULL);
}
