/*
 * Copies of rectangles and boxes, one row after another. Rows that lie next to each other on both sides are one; from the card,
 * rows that lie near each other come together with what is between them.
 */
#include <stdlib.h>
#include "client_parts.h"

/* One side of a copy: where it begins, and how far apart its rows and planes are. */
struct box_end { int kind; uintptr_t at; size_t pitch, plane; };
struct extent { size_t width, height, depth; };
struct way { bool async; CUstream stream; };

static CUresult copy_row(const struct box_end *src, const struct box_end *dst, size_t from, size_t to, size_t bytes, const struct way *w)
{
	void *host_from = (void *)(src->at + from), *host_to = (void *)(dst->at + to);
	CUdeviceptr card_from = src->at + from, card_to = dst->at + to;

	if (src->kind == CU_MEMORY_HOST && dst->kind == CU_MEMORY_HOST)
		return memmove(host_to, host_from, bytes), CUDA_SUCCESS;
	if (src->kind == CU_MEMORY_HOST)
		return w->async ? cuMemcpyHtoDAsync_v2(card_to, host_from, bytes, w->stream) : cuMemcpyHtoD_v2(card_to, host_from, bytes);
	if (dst->kind == CU_MEMORY_HOST)
		return w->async ? cuMemcpyDtoHAsync_v2(host_to, card_from, bytes, w->stream) : cuMemcpyDtoH_v2(host_to, card_from, bytes);
	return w->async ? cuMemcpyDtoDAsync_v2(card_to, card_from, bytes, w->stream) : cuMemcpyDtoD_v2(card_to, card_from, bytes);
}

#define TOGETHER ((size_t)4 << 20) /* bytes that come at once, with what is between them */
#define SPARSE 4                   /* rows so many widths apart come alone */

/* The rows of a plane from the card, as many at a time as is worth it. */
static CUresult read_plane(const struct box_end *src, const struct box_end *dst, size_t from, size_t to, size_t width, size_t height, const struct way *w)
{
	size_t most = TOGETHER / src->pitch;
	struct box_end rows = {.kind = CU_MEMORY_HOST};
	CUresult r = CUDA_SUCCESS;
	char *band;

	most = most < height ? most : height;
	band = malloc(most * src->pitch);
	if (!band)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rows.at = (uintptr_t)band;
	for (size_t y = 0; r == CUDA_SUCCESS && y < height; y += most) {
		size_t n = most < height - y ? most : height - y;
		r = copy_row(src, &rows, from + y * src->pitch, 0, (n - 1) * src->pitch + width, w);
		for (size_t i = 0; r == CUDA_SUCCESS && i < n; i++)
			memcpy((char *)dst->at + to + (y + i) * dst->pitch, band + i * src->pitch, width);
	}
	free(band);
	return r;
}

static bool known(int kind) { return kind == CU_MEMORY_HOST || kind == CU_MEMORY_DEVICE; }

static CUresult copy_box(const struct box_end *src, const struct box_end *dst, struct extent e, struct way w)
{
	CUresult r = CUDA_SUCCESS;
	bool together;

	if (!known(src->kind) || !known(dst->kind))
		return CUDA_ERROR_NOT_SUPPORTED; /* arrays, and one address space for both */
	if (!e.width || !e.height || !e.depth)
		return CUDA_SUCCESS;
	if ((e.height * e.depth > 1 && (src->pitch < e.width || dst->pitch < e.width)) || !src->at || !dst->at)
		return CUDA_ERROR_INVALID_VALUE;
	if (e.depth > 1 && (src->plane / e.height < src->pitch || dst->plane / e.height < dst->pitch))
		return CUDA_ERROR_INVALID_VALUE;
	if (src->pitch == e.width && dst->pitch == e.width) {
		e.width *= e.height;
		e.height = 1;
	}
	if (e.height == 1 && src->plane == e.width && dst->plane == e.width) {
		e.width *= e.depth;
		e.depth = 1;
	}
	together = src->kind == CU_MEMORY_DEVICE && dst->kind == CU_MEMORY_HOST && e.height > 1 && src->pitch / SPARSE <= e.width && src->pitch <= TOGETHER / 2;
	for (size_t z = 0; r == CUDA_SUCCESS && z < e.depth; z++) {
		if (together) {
			r = read_plane(src, dst, z * src->plane, z * dst->plane, e.width, e.height, &w);
			continue;
		}
		for (size_t y = 0; r == CUDA_SUCCESS && y < e.height; y++)
			r = copy_row(src, dst, z * src->plane + y * src->pitch, z * dst->plane + y * dst->pitch, e.width, &w);
	}
	return r;
}

static CUresult copy_rectangle(const CUcopy2D *c, struct way w)
{
#define SIDE(s) {(s).type, ((s).type == CU_MEMORY_HOST ? (uintptr_t)(s).host : (uintptr_t)(s).device) + (s).y * (s).pitch + (s).x, (s).pitch, 0}
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	struct box_end src = SIDE(c->src), dst = SIDE(c->dst);
	return copy_box(&src, &dst, (struct extent){c->width, c->height, 1}, w);
#undef SIDE
}

static CUresult copy_planes(const CUcopy3D *c, struct way w)
{
#define PLANE(s) ((s).pitch * (s).height)
#define SIDE(s) {(s).type, ((s).type == CU_MEMORY_HOST ? (uintptr_t)(s).host : (uintptr_t)(s).device) + (s).z * PLANE(s) + (s).y * (s).pitch + (s).x, (s).pitch, PLANE(s)}
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	struct box_end src = SIDE(c->src), dst = SIDE(c->dst);
	return copy_box(&src, &dst, (struct extent){c->width, c->height, c->depth}, w);
#undef SIDE
#undef PLANE
}

CUresult cuMemcpy2D_v2(void *copy) { return copy_rectangle(copy, (struct way){0}); }
CUresult cuMemcpy2DUnaligned_v2(void *copy) { return copy_rectangle(copy, (struct way){0}); }
CUresult cuMemcpy2DAsync_v2(void *copy, CUstream stream) { return copy_rectangle(copy, (struct way){true, stream}); }
CUresult cuMemcpy3D_v2(void *copy) { return copy_planes(copy, (struct way){0}); }
CUresult cuMemcpy3DAsync_v2(void *copy, CUstream stream) { return copy_planes(copy, (struct way){true, stream}); }
