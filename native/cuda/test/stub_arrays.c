/*
 * Arrays of the tests' driver. Their contents are there, in memory of their own or, where they were made without memory, in
 * what has been put behind them; a copy from or to an array that has none is an error. STUB_DEFERRED=off: they cannot be
 * made without. STUB_ALIGN=BYTES: how they lie in memory. STUB_MAP_FAILS=N: so many times memory can be put behind one, and then not.
 */
#define STUB_TILE ((uint64_t)65536)
#define STUB_LEVELS 16

struct stub_array {
	CUarray3DDesc desc;
	unsigned levels;
	int mipmapped;
	char *own;              /* its memory, if it was made with it */
	struct object *memory;  /* what has been put behind it, */
	uint64_t at, size;      /* and where there */
	struct object *parent;  /* of a level */
	unsigned number;
	struct object *level[STUB_LEVELS];
};

static uint64_t element(int format) { return format == 1 || format == 8 ? 1 : format == 2 || format == 9 || format == 0x10 ? 2 : 4; }
static uint64_t or1(uint64_t n) { return n ? n : 1; }
static uint64_t row_of(const CUarray3DDesc *d, unsigned i) { return or1(d->width >> i) * element(d->format) * or1(d->channels); }
static uint64_t rows_of(const CUarray3DDesc *d, unsigned i) { return or1(d->height >> i); }
static uint64_t slices_of(const CUarray3DDesc *d, unsigned i) { return d->flags & (CU_ARRAY_LAYERED | CU_ARRAY_CUBEMAP) ? or1(d->depth) : or1(d->depth >> i); }
static uint64_t level_size(const CUarray3DDesc *d, unsigned i) { return row_of(d, i) * rows_of(d, i) * slices_of(d, i); }
static uint64_t levels_at(const CUarray3DDesc *d, unsigned levels)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < levels; i++)
		sum += UP(level_size(d, i), 512);
	return sum;
}

static uint64_t stub_align(void)
{
	const char *s = getenv("STUB_ALIGN");
	return s ? strtoull(s, NULL, 10) : STUB_TILE;
}

static void stub_array_gone(struct object *o)
{
	struct stub_array *a = o->array;

	if (a->memory && --a->memory->refs == 0)
		object_drop(a->memory);
	for (unsigned i = 0; i < STUB_LEVELS; i++)
		if (a->level[i]) {
			free(a->level[i]->array);
			object_drop(a->level[i]);
		}
	if (a->own)
		munmap(a->own, UP(a->size, 4096));
	free(a);
	o->array = NULL;
}

static CUresult array(void **out, const CUarray3DDesc *d, unsigned levels, int mipmapped)
{
	int deferred = (d->flags & CU_ARRAY_DEFERRED) != 0, without = (d->flags & 0xC0) != 0;
	const char *can = getenv("STUB_DEFERRED");
	struct stub_array *a;
	struct object *o;

	NEED_CONTEXT();
	if (!d->width || (deferred && ((can && !strcmp(can, "off")) || (d->flags & ~0x8fu) || d->format > 0x20)))
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t most = d->width > d->height ? d->width : d->height, top = 1;
	if (!(d->flags & (CU_ARRAY_LAYERED | CU_ARRAY_CUBEMAP)) && d->depth > most)
		most = d->depth;
	while (most >> top)
		top++;
	if (levels > top)
		levels = (unsigned)top;
	uint64_t size = UP(levels_at(d, levels), STUB_TILE);
	if (!without && !stub_take(stub_current()->dev, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	a = calloc(1, sizeof *a);
	*a = (struct stub_array){.desc = *d, .levels = levels, .mipmapped = mipmapped, .size = size};
	if (!without)
		a->own = host(size, -1, PROT_READ | PROT_WRITE);
	o = object_add(IS_ARRAY, 0, stub_current()->dev, size, without ? 0 : size);
	o->array = a;
	o->key = (uintptr_t)o;
	*out = o;
	return CUDA_SUCCESS;
}

API CUresult cuArrayCreate_v2(CUarray *a, const CUarrayDesc *d)
{
	CUarray3DDesc d3 = {d->width, d->height, 0, d->format, d->channels, 0};
	return array(a, &d3, 1, 0);
}
API CUresult cuArray3DCreate_v2(CUarray *a, const CUarray3DDesc *d) { return array(a, d, 1, 0); }
API CUresult cuMipmappedArrayCreate(CUmipmappedArray *a, const CUarray3DDesc *d, unsigned levels) { return array(a, d, levels ? levels : 1, 1); }

static struct object *array_of(void *handle, int mipmapped)
{
	struct object *o = object_find(IS_ARRAY, (uintptr_t)handle);
	return o && o->array->mipmapped == mipmapped ? o : NULL;
}

/* What is behind an array stays taken if it is destroyed first, as far as anybody knows. */
static CUresult array_gone(struct object *o)
{
	if (!o || o->array->parent)
		return CUDA_ERROR_INVALID_HANDLE;
	if (o->array->memory)
		o->array->memory = NULL;
	stub_array_gone(o);
	object_drop(o);
	return CUDA_SUCCESS;
}
API CUresult cuArrayDestroy(CUarray a) { return getenv("STUB_DESTROY_FAILS") ? 999 : array_gone(array_of(a, 0)); }
API CUresult cuMipmappedArrayDestroy(CUmipmappedArray a) { return array_gone(array_of(a, 1)); }

API CUresult cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray m, unsigned n)
{
	struct object *o = array_of(m, 1);
	struct stub_array *a;

	if (!o || n >= o->array->levels)
		return CUDA_ERROR_INVALID_VALUE;
	if (!o->array->level[n]) {
		a = calloc(1, sizeof *a);
		*a = (struct stub_array){.desc = o->array->desc, .levels = 1, .parent = o, .number = n};
		o->array->level[n] = object_add(IS_ARRAY, 0, o->dev, 0, 0);
		o->array->level[n]->array = a;
		o->array->level[n]->ctx = NULL; /* it goes with its array */
		o->array->level[n]->key = (uintptr_t)o->array->level[n];
	}
	*level = o->array->level[n];
	return CUDA_SUCCESS;
}
API CUresult cuArray3DGetDescriptor_v2(CUarray3DDesc *d, CUarray a)
{
	struct object *o = array_of(a, 0);
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	*d = o->array->desc;
	d->width = or1(d->width >> o->array->number);
	d->height >>= o->array->number;
	return CUDA_SUCCESS;
}
API CUresult cuArray3DGetDescriptor(CUarray3DDescV1 *d, CUarray a)
{
	CUarray3DDesc long_one;
	CUresult r = cuArray3DGetDescriptor_v2(&long_one, a);
	if (r == CUDA_SUCCESS)
		*d = (CUarray3DDescV1){(unsigned)long_one.width, (unsigned)long_one.height, (unsigned)long_one.depth, long_one.format, long_one.channels, long_one.flags};
	return r;
}
static CUresult requirements(CUarrayMemory *m, struct object *o)
{
	if (!o || !(o->array->desc.flags & CU_ARRAY_DEFERRED))
		return CUDA_ERROR_INVALID_VALUE;
	*m = (CUarrayMemory){.size = o->array->size, .alignment = stub_align()};
	return CUDA_SUCCESS;
}
API CUresult cuArrayGetMemoryRequirements(CUarrayMemory *m, CUarray a, CUdevice d) { (void)d; return requirements(m, array_of(a, 0)); }
API CUresult cuMipmappedArrayGetMemoryRequirements(CUarrayMemory *m, CUmipmappedArray a, CUdevice d) { (void)d; return requirements(m, array_of(a, 1)); }
static CUresult sparse(struct object *o) { return o && o->array->desc.flags & CU_ARRAY_SPARSE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
API CUresult cuArrayGetSparseProperties(void *p, CUarray a) { (void)p; return sparse(array_of(a, 0)); }
API CUresult cuMipmappedArrayGetSparseProperties(void *p, CUmipmappedArray a) { (void)p; return sparse(array_of(a, 1)); }

static int map_may(void)
{
	const char *left = getenv("STUB_MAP_FAILS");
	char less[16];

	if (!left || !*left)
		return 1;
	if (atoi(left) == 0)
		return 0;
	snprintf(less, sizeof less, "%d", atoi(left) - 1);
	setenv("STUB_MAP_FAILS", less, 1);
	return 1;
}

API CUresult cuMemMapArrayAsync(CUarrayMap *list, unsigned n, CUstream s)
{
	(void)s;
	NEED_CONTEXT();
	for (unsigned i = 0; i < n; i++) {
		struct object *o = array_of(list[i].resource, list[i].resource_type == CU_RESOURCE_MIPMAPPED), *v = object_find(IS_VMM, list[i].handle);
		struct stub_array *a = o ? o->array : NULL;
		if (!a || a->parent || !(a->desc.flags & CU_ARRAY_DEFERRED) || list[i].device_mask != 1u << stub_current()->dev || list[i].flags)
			return CUDA_ERROR_INVALID_VALUE;
		if (list[i].operation == CU_ARRAY_UNMAP) {
			if (list[i].handle || !a->memory)
				return CUDA_ERROR_INVALID_VALUE;
			v = a->memory;
			a->memory = NULL;
			v->refs--;
			vmm_settle(v);
			continue;
		}
		if (!v || !v->tiles || v->dev != o->dev || a->memory || list[i].offset % stub_align() || list[i].offset + a->size > v->bytes)
			return CUDA_ERROR_INVALID_VALUE;
		if (!map_may())
			return CUDA_ERROR_NOT_SUPPORTED;
		v->refs++;
		a->memory = v;
		a->at = list[i].offset;
	}
	return CUDA_SUCCESS;
}

/* ---- copies ---- */

/* Reads or writes bytes at a place of an array's level. */
static CUresult array_bytes(struct object *o, uint64_t x, uint64_t y, uint64_t z, char *host, uint64_t n, int write)
{
	unsigned level = o ? o->array->number : 0;
	struct stub_array *a = !o ? NULL : o->array->parent ? o->array->parent->array : o->array;
	uint64_t at;

	if (!a || x + n > row_of(&a->desc, level) || y >= rows_of(&a->desc, level) || z >= slices_of(&a->desc, level) || (!a->own && !a->memory))
		return CUDA_ERROR_INVALID_VALUE;
	at = levels_at(&a->desc, level) + (z * rows_of(&a->desc, level) + y) * row_of(&a->desc, level) + x;
	if (a->own)
		memcpy(write ? a->own + at : host, write ? host : a->own + at, n);
	else if ((write ? pwrite(a->memory->fd, host, n, (off_t)(a->at + at)) : pread(a->memory->fd, host, n, (off_t)(a->at + at))) != (ssize_t)n)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult copy_row(const CUcopyEnd *array, const CUcopyEnd *there, uint64_t y, uint64_t z, uint64_t n, int write)
{
	char *base = there->type == CU_MEMORY_HOST ? there->host : (char *)(uintptr_t)there->device;
	return array_bytes(array_of(array->array, 0), array->x, array->y + y, array->z + z, base + there->x + (there->y + y + (there->z + z) * there->height) * there->pitch, n, write);
}

API CUresult cuMemcpy3D_v2(const void *copy)
{
	const CUcopy3D *c = copy;
	CUresult r = CUDA_SUCCESS;

	NEED_CONTEXT();
	if ((c->src.type == CU_MEMORY_ARRAY) == (c->dst.type == CU_MEMORY_ARRAY))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t z = 0; z < c->depth && !r; z++)
		for (uint64_t y = 0; y < c->height && !r; y++)
			r = c->dst.type == CU_MEMORY_ARRAY ? copy_row(&c->dst, &c->src, y, z, c->width, 1) : copy_row(&c->src, &c->dst, y, z, c->width, 0);
	return r;
}
API CUresult cuMemcpy3DAsync_v2(const void *c, CUstream s) { (void)s; return cuMemcpy3D_v2(c); }
API CUresult cuMemcpyHtoA_v2(CUarray d, size_t at, const void *s, size_t n) { return array_bytes(array_of(d, 0), at, 0, 0, (char *)s, n, 1); }
API CUresult cuMemcpyAtoH_v2(void *d, CUarray s, size_t at, size_t n) { return array_bytes(array_of(s, 0), at, 0, 0, d, n, 0); }
API CUresult cuMemcpyHtoAAsync_v2(CUarray d, size_t a, const void *s, size_t n, CUstream st) { (void)st; return cuMemcpyHtoA_v2(d, a, s, n); }
API CUresult cuMemcpyAtoHAsync_v2(void *d, CUarray s, size_t a, size_t n, CUstream st) { (void)st; return cuMemcpyAtoH_v2(d, s, a, n); }
API CUresult cuMemcpyDtoA_v2(CUarray d, size_t at, CUdeviceptr s, size_t n) { return cuMemcpyHtoA_v2(d, at, (const void *)(uintptr_t)s, n); }
API CUresult cuMemcpyAtoD_v2(CUdeviceptr d, CUarray s, size_t at, size_t n) { return cuMemcpyAtoH_v2((void *)(uintptr_t)d, s, at, n); }
