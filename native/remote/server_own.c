/* The calls that calls.tab does not describe: contexts, code, launches and copies. */
#include <stdlib.h>
#include "code.h"
#include "constants.h"
#include "server.h"

#define GET(what) do { if (!reader_get(&s->in, &(what), sizeof(what))) return BROKEN; } while (0)
#define DONE() do { if (!reader_done(&s->in)) return BROKEN; } while (0)

int serve_goodbye(struct served *s) { (void)s; return CUDA_SUCCESS; }

/* What came before has been carried out, or begun. */
int serve_fence(struct served *s)
{
	DONE();
	return CUDA_SUCCESS;
}

int serve_end_copies(struct served *s)
{
	DONE();
	copies_end();
	return CUDA_SUCCESS;
}

int serve_lane_end(struct served *s)
{
	lane_drop(s->lane);
	return CUDA_SUCCESS;
}

int serve_lane_context(struct served *s)
{
	uint64_t id;
	void *real;

	GET(id);
	DONE();
	if (!object_find(s, KIND_context, id, &real))
		return CUDA_ERROR_INVALID_CONTEXT;
	lane_set_context(s->lane, id);
	return CUDA_SUCCESS;
}

static int made_context(struct served *s, int r, void *real)
{
	uint64_t id = r == CUDA_SUCCESS ? object_add(KIND_context, real) : 0;

	if (r == CUDA_SUCCESS && !id)
		return CUDA_ERROR_OUT_OF_MEMORY;
	writer_put(&s->out, &id, sizeof id);
	return r;
}

static uint64_t primaries[MAX_DEVICES]; /* contexts, by device */

int serve_retain(struct served *s)
{
	void *real = NULL;
	int32_t dev;
	int r;

	GET(dev);
	DONE();
	r = driver.cuDevicePrimaryCtxRetain(&real, dev);
	if (r == CUDA_SUCCESS && dev >= 0 && dev < MAX_DEVICES)
		primaries[dev] = object_add(KIND_context, real);
	return made_context(s, r, real);
}

/* With the last of those who retained it a context loses its memory. */
int serve_release(struct served *s)
{
	unsigned flags;
	int active = 1, r;
	int32_t dev;

	GET(dev);
	DONE();
	r = driver.cuDevicePrimaryCtxRelease_v2(dev);
	if (r == CUDA_SUCCESS && dev >= 0 && dev < MAX_DEVICES && driver.cuDevicePrimaryCtxGetState(dev, &flags, &active) == CUDA_SUCCESS && !active) {
		memory_forget(primaries[dev]);
		lanes_forget(primaries[dev]);
	}
	return r;
}

/* The thread that made it has it at once; here a thread has what its next call wants. */
int serve_create_context(struct served *s)
{
	struct { uint32_t flags; int32_t dev; } args;
	void *real = NULL, *before = NULL;
	int r;

	GET(args);
	DONE();
	r = driver.cuCtxCreate_v2(&real, args.flags, args.dev);
	if (r == CUDA_SUCCESS)
		driver.cuCtxPopCurrent_v2(&before);
	return made_context(s, r, real);
}

int serve_destroy_context(struct served *s)
{
	void *real;
	uint64_t id;
	int r;

	GET(id);
	DONE();
	if (!id || !object_find(s, KIND_context, id, &real))
		return CUDA_ERROR_INVALID_CONTEXT;
	r = driver.cuCtxDestroy_v2(real);
	if (r == CUDA_SUCCESS) {
		object_drop(KIND_context, id);
		memory_forget(id);
		lanes_forget(id);
	}
	return r;
}

/* ---- code ---- */

static int load(struct served *s, const struct wire_load *l, const void *code)
{
	int options[MOST_OPTIONS], r;
	void *values[MOST_OPTIONS], *mod = NULL;
	uint64_t id;

	for (uint32_t i = 0; i < l->options; i++) {
		options[i] = l->option[i];
		values[i] = (void *)(uintptr_t)l->value[i];
		if (options[i] == 1 || (options[i] >= 2 && options[i] <= 6) || options[i] < 0 || options[i] > 14) /* those are pointers */
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	r = driver.cuModuleLoadDataEx(&mod, (void *)code, l->options, options, values);
	if (r != CUDA_SUCCESS)
		return r;
	id = object_add(KIND_module, mod);
	if (!id) {
		driver.cuModuleUnload(mod); /* nobody could */
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	writer_put(&s->out, &id, sizeof id);
	return CUDA_SUCCESS;
}

/* The driver reads code by what it says of itself: that must not lead beyond what has come. */
int serve_load(struct served *s)
{
	struct wire_load l;
	size_t size;
	void *code;
	int r;

	GET(l);
	size = (size_t)(s->in.end - s->in.at);
	if (l.options > MOST_OPTIONS || code_size(s->in.at, size) != size || !size)
		return BROKEN;
	code = aligned_alloc(4096, ROUND_UP(size, 4096)); /* as it lay in the program, on a boundary */
	if (!code)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(code, s->in.at, size);
	r = load(s, &l, code);
	if (r == CUDA_SUCCESS)
		code_retain(code, size);
	else
		free(code);
	return r;
}

int serve_load_again(struct served *s)
{
	struct code_name name;
	struct wire_load l;
	const void *code;

	GET(l);
	GET(name);
	DONE();
	if (l.options > MOST_OPTIONS)
		return BROKEN;
	code = code_find(&name);
	return code ? load(s, &l, code) : CODE_UNKNOWN;
}

static struct kernel *layout(void *fn, uint64_t module)
{
	struct kernel *k = calloc(1, sizeof *k + MOST_PARAMS * sizeof *k->param);
	size_t offset, size;

	if (!k)
		return NULL;
	k->module = module;
	for (; k->count < MOST_PARAMS && driver.cuFuncGetParamInfo(fn, k->count, &offset, &size) == CUDA_SUCCESS; k->count++) {
		k->param[k->count] = (struct wire_param){(uint32_t)offset, (uint32_t)size};
		if (offset + size > k->bytes)
			k->bytes = (uint32_t)(offset + size);
	}
	return k;
}

static void after_answer(void *arg) { free(arg); }

int serve_function(struct served *s)
{
	char name[MOST_NAME];
	uint64_t module;
	void *mod, *fn = NULL;
	struct kernel *k;
	struct { struct wire_function f; struct wire_param param[MOST_PARAMS]; } *back;
	int r;

	GET(module);
	if (!reader_text(&s->in, name, sizeof name))
		return BROKEN;
	DONE();
	if (!object_find(s, KIND_module, module, &mod))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!driver.cuFuncGetParamInfo)
		return CUDA_ERROR_NOT_SUPPORTED; /* without it nobody knows what to launch with */
	r = driver.cuModuleGetFunction(&fn, mod, name);
	if (r != CUDA_SUCCESS)
		return r;
	k = layout(fn, module);
	back = calloc(1, sizeof *back);
	if (!k || !back || !(back->f.id = object_add(KIND_function, fn))) {
		free(k);
		free(back);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	back->f.count = k->count;
	memcpy(back->param, k->param, k->count * sizeof *k->param);
	kernel_set(back->f.id, k);
	s->apart = (struct apart){.data = back, .size = sizeof *back, .over = after_answer, .arg = back};
	return CUDA_SUCCESS;
}

int serve_global(struct served *s)
{
	struct { uint64_t ptr, bytes; } back;
	char name[MOST_NAME];
	CUdeviceptr ptr = 0;
	size_t bytes = 0;
	uint64_t module;
	void *mod;
	int r;

	GET(module);
	if (!reader_text(&s->in, name, sizeof name))
		return BROKEN;
	DONE();
	if (!object_find(s, KIND_module, module, &mod))
		return CUDA_ERROR_INVALID_HANDLE;
	r = driver.cuModuleGetGlobal_v2 ? driver.cuModuleGetGlobal_v2(&ptr, &bytes, mod, name) : CUDA_ERROR_NOT_SUPPORTED;
	if (r != CUDA_SUCCESS)
		return r;
	memory_add_variable(s, module, ptr, bytes);
	back.ptr = ptr;
	back.bytes = bytes;
	writer_put(&s->out, &back, sizeof back);
	return CUDA_SUCCESS;
}

int serve_launch(struct served *s)
{
	static unsigned char bytes[64 << 10] __attribute__((aligned(16))); /* only the thread that reads calls launches */
	static void *params[MOST_PARAMS];
	struct wire_launch l;
	const struct kernel *k;
	void *fn, *stream;

	GET(l);
	k = kernel_of(l.function);
	if (!k || !object_find(s, KIND_function, l.function, &fn) || !object_find(s, KIND_stream, l.stream, &stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (k->bytes > sizeof bytes || !reader_get(&s->in, bytes, k->bytes))
		return BROKEN;
	DONE();
	for (uint32_t i = 0; i < k->count; i++)
		params[i] = bytes + k->param[i].offset;
	if (l.cooperative)
		return driver.cuLaunchCooperativeKernel ? driver.cuLaunchCooperativeKernel(fn, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.shared, stream, params) : CUDA_ERROR_NOT_SUPPORTED;
	return driver.cuLaunchKernel(fn, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.shared, stream, params, NULL);
}

/* ---- copies ---- */

/* A graph copies when it is launched, from where the bytes were when it was captured: the server does not have them that long. */
static bool in_capture(void *stream)
{
	int status = 0;

	return stream && driver.cuStreamIsCapturing && driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status;
}

static int find_copy(struct served *s, struct wire_copy *c, void **stream, uint32_t most)
{
	enum { STREAM_CAPTURE_UNSUPPORTED = 900 };

	GET(*c);
	if (c->bytes > most)
		return BROKEN;
	if (!object_find(s, KIND_stream, c->with_stream ? c->stream : 0, stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (in_capture(*stream))
		return STREAM_CAPTURE_UNSUPPORTED;
	return memory_owns(c->address, c->bytes, 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A little goes into the driver's own buffer, so that nobody waits; it is ordered behind what the stream has. */
int serve_write(struct served *s)
{
	struct wire_copy c;
	void *stream;
	int r = find_copy(s, &c, &stream, (uint32_t)64 << 10);

	if (r != CUDA_SUCCESS)
		return r;
	if ((size_t)(s->in.end - s->in.at) != c.bytes)
		return BROKEN;
	return driver.cuMemcpyHtoDAsync_v2(c.address, (void *)s->in.at, c.bytes, stream);
}

int serve_write_large(struct served *s)
{
	struct wire_copy c;
	void *stream;
	int r = find_copy(s, &c, &stream, CHUNK);

	if (r != CUDA_SUCCESS)
		return r;
	if ((size_t)(s->in.end - s->in.at) != c.bytes)
		return BROKEN;
	r = driver.cuMemcpyHtoDAsync_v2(c.address, (void *)s->in.at, c.bytes, stream);
	return r == CUDA_SUCCESS ? driver.cuStreamSynchronize(stream) : r;
}

int serve_read(struct served *s)
{
	struct wire_copy c;
	void *stream, *buffer;
	int r = find_copy(s, &c, &stream, CHUNK);

	if (r != CUDA_SUCCESS)
		return r;
	DONE();
	buffer = buffer_get();
	if (!buffer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = driver.cuMemcpyDtoHAsync_v2(buffer, c.address, c.bytes, stream);
	if (r == CUDA_SUCCESS)
		r = driver.cuStreamSynchronize(stream);
	if (r == CUDA_SUCCESS)
		s->apart = (struct apart){.data = buffer, .size = c.bytes, .over = buffer_put, .arg = buffer};
	else
		buffer_put(buffer);
	return r;
}

int serve_error_text(struct served *s)
{
	struct { int32_t error; uint32_t name; } args;
	char text[MOST_NAME] = {0};
	const char *words = NULL;
	int r;

	GET(args);
	DONE();
	r = args.name ? driver.cuGetErrorName(args.error, &words) : driver.cuGetErrorString(args.error, &words);
	if (r == CUDA_SUCCESS && words)
		strncpy(text, words, sizeof text - 1);
	writer_put(&s->out, text, sizeof text);
	return r;
}
