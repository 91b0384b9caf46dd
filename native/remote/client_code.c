/* Code and launches. How a kernel's parameters lie in memory, the server's driver says. */
#include <stdio.h>
#include <stdlib.h>
#include "client_parts.h"
#include "code.h"

#define MOST_PARAM_BYTES ((uint32_t)32768)

bool take_options(struct wire_load *l, struct words *w, unsigned count, const int *options, void **values)
{
	for (unsigned i = 0; i < count; i++) {
		switch (options[i]) {
		case JIT_INFO_LOG: w->info = values[i]; break;
		case JIT_ERROR_LOG: w->error = values[i]; break;
		case JIT_INFO_LOG_SIZE: w->info_size = &values[i]; break;
		case JIT_ERROR_LOG_SIZE: w->error_size = &values[i]; break;
		default:
			if (!jit_is_number(options[i]) || l->options == MOST_OPTIONS)
				return false;
			l->option[l->options] = options[i];
			l->value[l->options++] = (uint64_t)(uintptr_t)values[i];
		}
	}
	l->words = (w->info && w->info_size) || (w->error && w->error_size);
	return true;
}

static pthread_mutex_t compiler = PTHREAD_MUTEX_INITIALIZER;
void compiler_lock(void) { pthread_mutex_lock(&compiler); }
void compiler_unlock(void) { pthread_mutex_unlock(&compiler); }

/* A buffer's size is its option's value, and afterwards how much is in it. */
static void give_words(char *to, void **size, const char *words, size_t bytes)
{
	size_t most = size ? (uintptr_t)*size : 0, n = strnlen(words, bytes - 1);

	if (!to || !most)
		return;
	n = n < most ? n : most - 1;
	memcpy(to, words, n);
	to[n] = 0;
	*size = (void *)(uintptr_t)n;
}

void take_words(const struct words *w)
{
	struct wire_words *said;

	said = calloc(1, sizeof *said);
	if (!said)
		return;
	if (call_sync(CALL_words, NULL, 0, said, sizeof *said) != CUDA_SUCCESS)
		memset(said, 0, sizeof *said);
	give_words(w->info, w->info_size, said->info, sizeof said->info);
	give_words(w->error, w->error_size, said->error, sizeof said->error);
	free(said);
}

void *file_read(const char *path, size_t *size)
{
	FILE *f = path ? fopen(path, "rb") : NULL;
	char *all = NULL;
	long n = -1;

	if (f && fseek(f, 0, SEEK_END) == 0 && (n = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0)
		all = malloc((size_t)n + 1);
	if (all && fread(all, 1, (size_t)n, f) != (size_t)n) {
		free(all);
		all = NULL;
	}
	if (f)
		fclose(f);
	if (all) {
		all[n] = 0;
		*size = (size_t)n;
	}
	return all;
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

/* Loads a module, or a library. */
static CUresult load_image(void **object, bool library, const void *image, unsigned count, const int *options, void **values)
{
	struct wire_load l = {.library = library};
	struct words w = {0};
	const void *code;
	uint64_t id;
	size_t size;
	CUresult r;

	if (!object || !image)
		return CUDA_ERROR_INVALID_VALUE;
	if (!take_options(&l, &w, count, options, values))
		return CUDA_ERROR_NOT_SUPPORTED;
	code = code_begins(image);
	size = code_size(code, MOST_PAYLOAD - sizeof l);
	if (!size)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (l.words)
		compiler_lock();
	r = load(&l, code, size, &id);
	if (l.words) {
		take_words(&w);
		compiler_unlock();
	}
	if (r == CUDA_SUCCESS)
		*object = (void *)(uintptr_t)id;
	return r;
}

CUresult cuModuleLoadDataEx(CUmodule *mod, void *image, unsigned count, void *options, void *values) { return load_image(mod, false, image, count, options, values); }
CUresult cuModuleLoadData(CUmodule *mod, void *image) { return cuModuleLoadDataEx(mod, image, 0, NULL, NULL); }
CUresult cuModuleLoad(CUmodule *mod, const char *path)
{
	size_t size;
	void *code = file_read(path, &size);
	CUresult r = code ? cuModuleLoadDataEx(mod, code, 0, NULL, NULL) : CUDA_ERROR_FILE_NOT_FOUND;

	free(code);
	return r;
}
CUresult cuModuleLoadFatBinary(CUmodule *mod, void *image) { return cuModuleLoadDataEx(mod, image, 0, NULL, NULL); }

/* A library says where its code is; that it stays there is of no use here. */
CUresult cuLibraryLoadData(CUlibrary *lib, void *code, int *options, void **values, unsigned count, int *library_options, void **library_values, unsigned library_count)
{
	enum { PRESERVED = 1 };

	(void)library_values;
	for (unsigned i = 0; i < library_count; i++)
		if (library_options[i] != PRESERVED)
			return CUDA_ERROR_NOT_SUPPORTED;
	return load_image(lib, true, code, count, options, values);
}

CUresult cuLibraryLoadFromFile(CUlibrary *lib, const char *path, int *options, void **values, unsigned count, int *library_options, void **library_values, unsigned library_count)
{
	size_t size;
	void *code = file_read(path, &size);
	CUresult r = code ? cuLibraryLoadData(lib, code, options, values, count, library_options, library_values, library_count) : CUDA_ERROR_FILE_NOT_FOUND;

	free(code);
	return r;
}

/* A module's function is one object, however often it is asked for. They are few, and live as long as the program. */
static struct { pthread_mutex_t lock; struct function **list; size_t count, most; } functions = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Another session has other functions by the same numbers. */
void code_forked(void)
{
	pthread_mutex_init(&compiler, NULL);
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
		if (functions.list[i]->id == f->id && functions.list[i]->kernel == f->kernel)
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

/* A function, or a library's kernel, with how its parameters lie in memory. */
static CUresult find_function(CUfunction *fn, struct wire_name of, const char *name)
{
	struct { struct wire_function f; struct wire_param param[MOST_PARAMS]; } *back;
	struct writer w = {.size = 0};
	struct function *f, *known = NULL;
	CUresult r;

	writer_put(&w, &of, sizeof of);
	if (!fn || !name || !writer_text(&w, name))
		return CUDA_ERROR_INVALID_VALUE;
	back = malloc(sizeof *back);
	r = back ? call_sync(CALL_function, w.bytes, w.size, back, sizeof *back) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS && (back->f.count > MOST_PARAMS || !(f = calloc(1, sizeof *f + back->f.count * sizeof *f->param))))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS) {
		f->id = back->f.id;
		f->count = back->f.count;
		f->kernel = of.of == OF_LIBRARY;
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

CUresult cuModuleGetFunction(CUfunction *fn, CUmodule mod, const char *name) { return find_function(fn, (struct wire_name){id_of(mod), OF_MODULE, 0}, name); }
CUresult cuLibraryGetKernel(CUfunction *kernel, CUlibrary lib, const char *name) { return find_function(kernel, (struct wire_name){id_of(lib), OF_LIBRARY, 0}, name); }
CUresult cuKernelGetFunction(CUfunction *fn, CUfunction kernel) { return find_function(fn, (struct wire_name){id_of_kernel(kernel), OF_KERNEL, 0}, ""); }

uint64_t id_of_callable(CUfunction f)
{
	CUfunction fn;

	return !id_of_kernel(f) ? id_of_function(f) : cuKernelGetFunction(&fn, f) == CUDA_SUCCESS ? id_of_function(fn) : 0;
}

static CUresult parameter(const struct function *f, size_t index, size_t *offset, size_t *size)
{
	if (!offset || index >= f->count)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = f->param[index].offset;
	if (size)
		*size = f->param[index].size;
	return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction fn, size_t index, size_t *offset, size_t *size) { return id_of_function(fn) ? parameter(fn, index, offset, size) : CUDA_ERROR_INVALID_VALUE; }
CUresult cuKernelGetParamInfo(CUfunction kernel, size_t index, size_t *offset, size_t *size) { return id_of_kernel(kernel) ? parameter(kernel, index, offset, size) : CUDA_ERROR_INVALID_VALUE; }

static CUresult find_variable(CUdeviceptr *ptr, size_t *bytes, struct wire_name of, const char *name)
{
	struct { uint64_t ptr, bytes; } back;
	struct writer w = {.size = 0};
	CUresult r;

	writer_put(&w, &of, sizeof of);
	if (!name || !writer_text(&w, name))
		return CUDA_ERROR_INVALID_VALUE;
	r = call_sync(CALL_global, w.bytes, w.size, &back, sizeof back);
	if (r == CUDA_SUCCESS && ptr)
		*ptr = back.ptr;
	if (r == CUDA_SUCCESS && bytes)
		*bytes = back.bytes;
	return r;
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *bytes, CUmodule mod, const char *name) { return find_variable(ptr, bytes, (struct wire_name){id_of(mod), OF_MODULE, 0}, name); }
CUresult cuLibraryGetGlobal(CUdeviceptr *ptr, size_t *bytes, CUlibrary lib, const char *name) { return find_variable(ptr, bytes, (struct wire_name){id_of(lib), OF_LIBRARY, 0}, name); }

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

static CUresult launch(const struct function *f, struct wire_launch l, const CUlaunchAttribute *attrs, void **params, void **extra)
{
	unsigned char all[sizeof l + MOST_ATTRIBUTES * sizeof *attrs + MOST_PARAM_BYTES];
	size_t size = sizeof l + l.attributes * sizeof *attrs;

	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	l.function = f->id;
	l.kernel = f->kernel;
	memcpy(all, &l, sizeof l);
	if (l.attributes)
		memcpy(all + sizeof l, attrs, l.attributes * sizeof *attrs);
	memset(all + size, 0, f->bytes);
	if (!pack(f, params, extra, all + size))
		return CUDA_ERROR_INVALID_VALUE;
	return call_async(CALL_launch, all, size + f->bytes);
}

CUresult cuLaunchKernel(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	return launch(fn, (struct wire_launch){.stream = id_of(stream), .grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared = shared}, NULL, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params)
{
	return launch(fn, (struct wire_launch){.stream = id_of(stream), .grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared = shared, .cooperative = 1}, NULL, params, NULL);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction fn, void **params, void **extra)
{
	CUlaunchAttribute taken[MOST_ATTRIBUTES];
	struct wire_launch l = {0};

	if (!c || (c->num_attrs && !c->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < c->num_attrs; i++) {
		if (!c->attrs[i].id) /* none */
			continue;
		if (!attribute_is_value(c->attrs[i].id) || l.attributes == MOST_ATTRIBUTES)
			return CUDA_ERROR_NOT_SUPPORTED;
		taken[l.attributes++] = c->attrs[i];
	}
	l.stream = id_of(c->stream);
	memcpy(l.grid, c->grid, sizeof l.grid);
	memcpy(l.block, c->block, sizeof l.block);
	l.shared = c->shared_bytes;
	return launch(fn, l, taken, params, extra);
}
