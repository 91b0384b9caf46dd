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
	if (!context_flags_carried(args.flags))
		return CUDA_ERROR_NOT_SUPPORTED;
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

static struct wire_words said; /* by the compiler, of the last load or link that wanted its words */

/* The driver's options: numbers that came, and where its words go. */
struct options { unsigned count; int option[MOST_OPTIONS + 4]; void *value[MOST_OPTIONS + 4]; };

static void add_option(struct options *o, int option, uint64_t value)
{
	o->option[o->count] = option;
	o->value[o->count++] = (void *)(uintptr_t)value;
}

static bool read_options(struct options *o, const struct wire_load *l)
{
	for (uint32_t i = 0; i < l->options; i++) {
		if (!jit_is_number(l->option[i])) /* others are pointers */
			return false;
		add_option(o, l->option[i], l->value[i]);
	}
	if (l->words) {
		memset(&said, 0, sizeof said);
		add_option(o, JIT_INFO_LOG, (uintptr_t)said.info);
		add_option(o, JIT_INFO_LOG_SIZE, sizeof said.info - 1);
		add_option(o, JIT_ERROR_LOG, (uintptr_t)said.error);
		add_option(o, JIT_ERROR_LOG_SIZE, sizeof said.error - 1);
	}
	return true;
}

static int load(struct served *s, const struct wire_load *l, const void *code)
{
	struct options o = {0};
	void *mod = NULL;
	uint64_t id;
	int r;

	if (!read_options(&o, l))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (l->library && (!driver.cuLibraryLoadData || !driver.cuLibraryUnload))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (l->library)
		r = driver.cuLibraryLoadData(&mod, (void *)code, o.option, o.value, o.count, NULL, NULL, 0);
	else
		r = driver.cuModuleLoadDataEx(&mod, (void *)code, o.count, o.option, o.value);
	if (r != CUDA_SUCCESS)
		return r;
	id = object_add(l->library ? KIND_library : KIND_module, mod);
	if (!id) {
		(l->library ? driver.cuLibraryUnload : driver.cuModuleUnload)(mod); /* nobody could */
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	writer_put(&s->out, &id, sizeof id);
	return CUDA_SUCCESS;
}

static void after_answer(void *arg) { free(arg); }

int serve_words(struct served *s)
{
	struct wire_words *copy;

	DONE();
	copy = malloc(sizeof *copy);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*copy = said;
	s->apart = (struct apart){.data = copy, .size = sizeof *copy, .over = after_answer, .arg = copy};
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

/* ---- the linker ---- */

static struct { void *code; size_t size; } linked; /* last, until it is taken */

/* Adds what came; BROKEN if it is not what it says. */
static int add_input(struct served *s, void *state)
{
	struct wire_input in;
	char name[MOST_NAME];
	void *code;
	int r;

	GET(in);
	if (in.type > LINK_LIBRARY || !in.name || !reader_text(&s->in, name, sizeof name) || strlen(name) + 1 != in.name || !in.size || in.size > (size_t)(s->in.end - s->in.at))
		return BROKEN;
	if (in.type == LINK_PTX ? s->in.at[in.size - 1] != 0 : in.type <= LINK_FATBIN && !code_size(s->in.at, in.size))
		return BROKEN;
	code = aligned_alloc(4096, ROUND_UP(in.size, 4096));
	if (!code)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(code, s->in.at, in.size);
	s->in.at += in.size;
	r = driver.cuLinkAddData_v2(state, (int)in.type, code, in.size, name, 0, NULL, NULL);
	free(code);
	return r;
}

/* From beginning to end: a session has no linker that is half done. */
int serve_link(struct served *s)
{
	struct options o = {0};
	void *state = NULL, *code = NULL;
	struct wire_load l;
	size_t size = 0;
	uint64_t bytes;
	int r;

	GET(l);
	if (l.options > MOST_OPTIONS)
		return BROKEN;
	if (!driver.cuLinkCreate_v2 || !driver.cuLinkAddData_v2 || !driver.cuLinkComplete || !driver.cuLinkDestroy || !read_options(&o, &l))
		return CUDA_ERROR_NOT_SUPPORTED;
	free(linked.code);
	linked.code = NULL;
	r = driver.cuLinkCreate_v2(o.count, o.option, o.value, &state);
	if (r != CUDA_SUCCESS)
		return r;
	while (r == CUDA_SUCCESS && s->in.at < s->in.end)
		r = add_input(s, state);
	if (r == CUDA_SUCCESS)
		r = driver.cuLinkComplete(state, &code, &size);
	if (r == CUDA_SUCCESS && (size > MOST_PAYLOAD / 2 || !(linked.code = malloc(size + 1))))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS) {
		memcpy(linked.code, code, size);
		linked.size = bytes = size;
		writer_put(&s->out, &bytes, sizeof bytes);
	}
	driver.cuLinkDestroy(state); /* and with it its code */
	return r;
}

int serve_linked(struct served *s)
{
	DONE();
	if (!linked.code)
		return CUDA_ERROR_NOT_FOUND;
	s->apart = (struct apart){.data = linked.code, .size = linked.size, .over = after_answer, .arg = linked.code};
	linked.code = NULL;
	return CUDA_SUCCESS;
}

/* ---- functions, variables, launches ---- */

typedef CUresult (*parameter_fn)(void *, size_t, size_t *, size_t *);

static struct kernel *layout(void *fn, uint64_t owner, parameter_fn parameter)
{
	struct kernel *k = calloc(1, sizeof *k + MOST_PARAMS * sizeof *k->param);
	size_t offset, size;

	if (!k)
		return NULL;
	k->owner = owner;
	for (; k->count < MOST_PARAMS && parameter(fn, k->count, &offset, &size) == CUDA_SUCCESS; k->count++) {
		k->param[k->count] = (struct wire_param){(uint32_t)offset, (uint32_t)size};
		if (offset + size > k->bytes)
			k->bytes = (uint32_t)(offset + size);
	}
	return k;
}

/* Whose a name is: what the driver calls it, and who owns what is found. */
struct named { struct wire_name of; char name[MOST_NAME]; void *real; uint64_t owner; };

static int read_name(struct served *s, struct named *n)
{
	static const enum handle_kind kinds[] = {[OF_MODULE] = KIND_module, [OF_LIBRARY] = KIND_library, [OF_KERNEL] = KIND_kernel};
	const struct kernel *k;

	GET(n->of);
	if (!reader_text(&s->in, n->name, sizeof n->name) || n->of.of > OF_KERNEL)
		return BROKEN;
	DONE();
	if (!object_find(s, kinds[n->of.of], n->of.id, &n->real))
		return CUDA_ERROR_INVALID_HANDLE;
	k = n->of.of == OF_KERNEL ? kernel_of(KIND_kernel, n->of.id) : NULL;
	n->owner = k ? k->owner : n->of.of == OF_LIBRARY ? LIBRARY | n->of.id : n->of.id;
	return n->of.of == OF_KERNEL && !k ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static int find_function(const struct named *n, void **fn)
{
	switch (n->of.of) {
	case OF_MODULE:
		return driver.cuModuleGetFunction(fn, n->real, n->name);
	case OF_LIBRARY:
		return driver.cuLibraryGetKernel ? driver.cuLibraryGetKernel(fn, n->real, n->name) : CUDA_ERROR_NOT_SUPPORTED;
	default:
		return driver.cuKernelGetFunction ? driver.cuKernelGetFunction(fn, n->real) : CUDA_ERROR_NOT_SUPPORTED;
	}
}

int serve_function(struct served *s)
{
	struct { struct wire_function f; struct wire_param param[MOST_PARAMS]; } *back;
	enum handle_kind kind;
	parameter_fn parameter;
	struct kernel *k;
	struct named n;
	void *fn = NULL;
	int r = read_name(s, &n);

	if (r != CUDA_SUCCESS)
		return r;
	kind = n.of.of == OF_LIBRARY ? KIND_kernel : KIND_function;
	parameter = kind == KIND_kernel ? driver.cuKernelGetParamInfo : driver.cuFuncGetParamInfo;
	if (!parameter)
		return CUDA_ERROR_NOT_SUPPORTED; /* without it nobody knows what to launch with */
	r = find_function(&n, &fn);
	if (r != CUDA_SUCCESS)
		return r;
	k = layout(fn, n.owner, parameter);
	back = calloc(1, sizeof *back);
	if (!k || !back || !(back->f.id = object_add(kind, fn))) {
		free(k);
		free(back);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	back->f.count = k->count;
	memcpy(back->param, k->param, k->count * sizeof *k->param);
	kernel_set(kind, back->f.id, k);
	s->apart = (struct apart){.data = back, .size = sizeof *back, .over = after_answer, .arg = back};
	return CUDA_SUCCESS;
}

int serve_global(struct served *s)
{
	struct { uint64_t ptr, bytes; } back;
	CUdeviceptr ptr = 0;
	size_t bytes = 0;
	struct named n;
	int r = read_name(s, &n);

	if (r != CUDA_SUCCESS)
		return r;
	if (n.of.of == OF_MODULE)
		r = driver.cuModuleGetGlobal_v2 ? driver.cuModuleGetGlobal_v2(&ptr, &bytes, n.real, n.name) : CUDA_ERROR_NOT_SUPPORTED;
	else
		r = n.of.of == OF_LIBRARY && driver.cuLibraryGetGlobal ? driver.cuLibraryGetGlobal(&ptr, &bytes, n.real, n.name) : CUDA_ERROR_NOT_SUPPORTED;
	if (r != CUDA_SUCCESS)
		return r;
	memory_add_variable(s, n.owner, ptr, bytes);
	back.ptr = ptr;
	back.bytes = bytes;
	writer_put(&s->out, &back, sizeof back);
	return CUDA_SUCCESS;
}

int serve_launch(struct served *s)
{
	static unsigned char bytes[64 << 10] __attribute__((aligned(16))); /* only the thread that reads calls launches */
	static void *params[MOST_PARAMS];
	CUlaunchAttribute attrs[MOST_ATTRIBUTES];
	struct wire_launch l;
	const struct kernel *k;
	enum handle_kind kind;
	void *fn, *stream;

	GET(l);
	kind = l.kernel ? KIND_kernel : KIND_function;
	k = kernel_of(kind, l.function);
	if (!k || !object_find(s, kind, l.function, &fn) || !object_find(s, KIND_stream, l.stream, &stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (l.attributes > MOST_ATTRIBUTES || !reader_get(&s->in, attrs, l.attributes * sizeof *attrs) || k->bytes > sizeof bytes || !reader_get(&s->in, bytes, k->bytes))
		return BROKEN;
	DONE();
	for (uint32_t i = 0; i < l.attributes; i++)
		if (!attribute_is_value(attrs[i].id))
			return BROKEN;
	for (uint32_t i = 0; i < k->count; i++)
		params[i] = bytes + k->param[i].offset;
	if (l.attributes) {
		CUlaunchConfig c = {.shared_bytes = l.shared, .stream = stream, .attrs = attrs, .num_attrs = l.attributes};
		memcpy(c.grid, l.grid, sizeof c.grid);
		memcpy(c.block, l.block, sizeof c.block);
		return driver.cuLaunchKernelEx ? driver.cuLaunchKernelEx(&c, fn, params, NULL) : CUDA_ERROR_NOT_SUPPORTED;
	}
	if (l.cooperative)
		return driver.cuLaunchCooperativeKernel ? driver.cuLaunchCooperativeKernel(fn, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.shared, stream, params) : CUDA_ERROR_NOT_SUPPORTED;
	return driver.cuLaunchKernel(fn, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.shared, stream, params, NULL);
}

/* What is known of the program's memory; of other addresses the driver says what they are to this process, not to the program. */
int serve_pointer(struct served *s)
{
	struct { uint64_t ptr; int32_t attribute; uint32_t unused; } args;
	uint64_t value = 0;
	int r;

	GET(args);
	DONE();
	if (!pointer_attribute_bytes(args.attribute) || !driver.cuPointerGetAttribute)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!memory_owns(args.ptr, 1, 1))
		return CUDA_ERROR_INVALID_VALUE;
	r = driver.cuPointerGetAttribute(&value, args.attribute, args.ptr);
	if (r == CUDA_SUCCESS && args.attribute == POINTER_CONTEXT && value) /* some memory is of no context */
		value = object_add(KIND_context, (void *)(uintptr_t)value);
	writer_put(&s->out, &value, sizeof value);
	return r;
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
