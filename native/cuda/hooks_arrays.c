/*
 * Hooks of arrays. In a container that can be swapped they are made over memory of ours (array_memory.c), and what the
 * program asks about them is answered as if they were not. The others stay where they are.
 */
#include "array_memory.h"
#include "driver_symbols.h"
#include "handlers.h"
#include "oversubscribe.h"
#include "take.h"

#define ARRAY_WITHOUT_MEMORY (CU_ARRAY_SPARSE | CU_ARRAY_DEFERRED) /* backed later, by cuMemCreate */
#define MAX_LEVELS 32

static uint64_t array_bytes(size_t width, size_t height, size_t depth, int format, unsigned channels)
{
	unsigned element = format == 0x01 || format == 0x08 ? 1 : format == 0x02 || format == 0x09 || format == 0x10 ? 2 : 4;

	return ROUND_UP((uint64_t)width * (height ? height : 1) * (depth ? depth : 1) * element * (channels ? channels : 1), 64 * 1024);
}

static uint64_t levels_bytes(const CUarray3DDesc *d, unsigned levels)
{
	uint64_t sum = 0;

	if (d->flags & ARRAY_WITHOUT_MEMORY)
		return 0;
	for (unsigned i = 0; i < levels && i < MAX_LEVELS; i++)
		sum += array_bytes(d->width >> i ? d->width >> i : 1, d->height >> i, d->flags & CU_ARRAY_LAYERED ? d->depth : d->depth >> i, d->format, d->channels);
	return sum;
}

/* False: the array is to be the driver's own. */
static bool take_movable(void **array, const CUarray3DDesc *desc, unsigned levels, CUresult *r)
{
	struct device *d = device_ready();
	bool ours, card_full;
	int alone = 0;

	if (!d || !atomic_load(&session.swap) || !array)
		return false;
	/* On an oversubscribed card a neighbour moves out; meanwhile we may be moved ourselves. */
	do {
		int pass_ = memory_call_enter();
		ours = array_make(d, array, desc, levels, r, &card_full);
		memory_call_leave(pass_);
	} while (ours && card_full && oversubscribe_wait(d, levels_bytes(desc, levels ? levels : 1), &alone));
	if (ours)
		oversubscribe_satisfied(d);
	return ours;
}

CUresult on_cuArrayCreate(fn_cuArrayCreate_v2 real, CUarray *array, const CUarrayDesc *desc)
{
	CUresult r;

	if (!desc)
		return real(array, desc);
	CUarray3DDesc d = {desc->width, desc->height, 0, desc->format, desc->channels, 0};
	if (take_movable(array, &d, 0, &r))
		return r;
	TAKE(*array, HOLD_ARRAY, levels_bytes(&d, 1), real(array, desc));
}

CUresult on_cuArray3DCreate(fn_cuArray3DCreate_v2 real, CUarray *array, const CUarray3DDesc *desc)
{
	CUresult r;

	if (!desc)
		return real(array, desc);
	if (take_movable(array, desc, 0, &r))
		return r;
	TAKE(*array, HOLD_ARRAY, levels_bytes(desc, 1), real(array, desc));
}

CUresult on_cuMipmappedArrayCreate(fn_cuMipmappedArrayCreate real, CUmipmappedArray *array, const CUarray3DDesc *desc, unsigned levels)
{
	CUresult r;

	if (!desc)
		return real(array, desc, levels);
	if (take_movable(array, desc, levels ? levels : 1, &r))
		return r;
	TAKE(*array, HOLD_ARRAY, levels_bytes(desc, levels ? levels : 1), real(array, desc, levels));
}

CUresult on_cuArrayDestroy(fn_cuArrayDestroy real, CUarray array)
{
	struct holding held_;
	CUresult r;

	int pass_ = memory_call_enter();
	if (!array_destroy(array, real, &r) && !HOLDING_DROP((uint64_t)(uintptr_t)array, HOLD_ARRAY, real(array), r))
		r = real(array);
	memory_call_leave(pass_);
	return r;
}

CUresult on_cuMipmappedArrayDestroy(fn_cuMipmappedArrayDestroy real, CUmipmappedArray array)
{
	return on_cuArrayDestroy(real, array);
}

/* ---- what a program asks: how its arrays got their memory is not its business ---- */

CUresult on_cuArray3DGetDescriptor(fn_cuArray3DGetDescriptor_v2 real, CUarray3DDesc *desc, CUarray array)
{
	CUresult r = real(desc, array);

	if (r == CUDA_SUCCESS && array_is_ours(array))
		desc->flags &= ~(unsigned)CU_ARRAY_DEFERRED;
	return r;
}

CUresult on_cuArray3DGetDescriptor_v1(fn_cuArray3DGetDescriptor real, CUarray3DDescV1 *desc, CUarray array)
{
	CUresult r = real(desc, array);

	if (r == CUDA_SUCCESS && array_is_ours(array))
		desc->flags &= ~(unsigned)CU_ARRAY_DEFERRED;
	return r;
}

/* The same handles at every call, so that they are known again. */
CUresult on_cuMipmappedArrayGetLevel(fn_cuMipmappedArrayGetLevel real, CUarray *level, CUmipmappedArray array, unsigned n)
{
	return level && array_level(array, n, level) ? CUDA_SUCCESS : real(level, array, n);
}

#define IF_OURS(array, call) (array_is_ours(array) ? CUDA_ERROR_INVALID_VALUE : (call))

CUresult on_cuArrayGetSparseProperties(fn_cuArrayGetSparseProperties real, void *properties, CUarray array)
{
	return IF_OURS(array, real(properties, array));
}

CUresult on_cuMipmappedArrayGetSparseProperties(fn_cuMipmappedArrayGetSparseProperties real, void *properties, CUmipmappedArray array)
{
	return IF_OURS(array, real(properties, array));
}

CUresult on_cuArrayGetMemoryRequirements(fn_cuArrayGetMemoryRequirements real, CUarrayMemory *memory, CUarray array, CUdevice dev)
{
	return IF_OURS(array, real(memory, array, dev));
}

CUresult on_cuMipmappedArrayGetMemoryRequirements(fn_cuMipmappedArrayGetMemoryRequirements real, CUarrayMemory *memory, CUmipmappedArray array, CUdevice dev)
{
	return IF_OURS(array, real(memory, array, dev));
}
