/* The linker: what is to be linked is gathered here and linked there at once, so that the server has no half-done work. */
#include <stdlib.h>
#include "client_parts.h"

struct link {
	struct wire_load options;
	struct words words;
	unsigned char *inputs;
	size_t size;
	void *code;
};

CUresult cuLinkCreate_v2(unsigned count, int *options, void **values, void **state)
{
	struct link *l;

	if (!state || (count && (!options || !values)))
		return CUDA_ERROR_INVALID_VALUE;
	l = calloc(1, sizeof *l);
	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!take_options(&l->options, &l->words, count, options, values)) {
		free(l);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	*state = l;
	return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(void *state, int type, void *data, size_t size, const char *name, unsigned count, int *options, void **values)
{
	struct link *l = state;
	struct wire_input in = {.type = (uint32_t)type};
	unsigned char *more;

	(void)options, (void)values;
	if (!l || !data || !size || type < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (count || type > LINK_LIBRARY)
		return CUDA_ERROR_NOT_SUPPORTED;
	name = name ? name : "";
	if (type == LINK_PTX)
		size = strnlen(data, size); /* and a zero, whether it was counted or not */
	in.name = (uint32_t)strlen(name) + 1;
	in.size = size + (type == LINK_PTX);
	if (in.name > MOST_NAME || in.size > MOST_PAYLOAD / 2 || l->size + sizeof in + in.name + in.size > MOST_PAYLOAD / 2)
		return CUDA_ERROR_NOT_SUPPORTED;
	more = realloc(l->inputs, l->size + sizeof in + in.name + in.size);
	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	l->inputs = more;
	more += l->size;
	memcpy(more, &in, sizeof in);
	memcpy(more + sizeof in, name, in.name);
	memcpy(more + sizeof in + in.name, data, size);
	if (type == LINK_PTX)
		more[sizeof in + in.name + size] = 0;
	l->size += sizeof in + in.name + in.size;
	return CUDA_SUCCESS;
}

CUresult cuLinkAddFile_v2(void *state, int type, const char *path, unsigned count, int *options, void **values)
{
	size_t size;
	void *data = file_read(path, &size);
	CUresult r = data ? cuLinkAddData_v2(state, type, data, size, path, count, options, values) : CUDA_ERROR_FILE_NOT_FOUND;

	free(data);
	return r;
}

CUresult cuLinkComplete(void *state, void **code, size_t *size)
{
	struct link *l = state;
	uint64_t bytes;
	void *linked = NULL;
	CUresult r;

	if (!l || !code)
		return CUDA_ERROR_INVALID_VALUE;
	compiler_lock(); /* the server retains what was linked last */
	r = call_sync_lending(CALL_link, &l->options, sizeof l->options, l->inputs, l->size, &bytes, sizeof bytes);
	if (l->options.words)
		take_words(&l->words);
	if (r == CUDA_SUCCESS && !(linked = malloc(bytes)))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS)
		r = call_sync(CALL_linked, NULL, 0, linked, bytes);
	compiler_unlock();
	if (r != CUDA_SUCCESS) {
		free(linked);
		return r;
	}
	free(l->code);
	*code = l->code = linked;
	if (size)
		*size = bytes;
	return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(void *state)
{
	struct link *l = state;

	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	free(l->inputs);
	free(l->code);
	free(l);
	return CUDA_SUCCESS;
}
