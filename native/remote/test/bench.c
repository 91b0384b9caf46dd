/*
 * What a card costs from afar: launches, a call that waits, copies. The same program with the card's own driver and with the
 * client; it prints "figure NAME VALUE UNIT". With "work SECONDS" it says how many kernels a second it gets done instead, each
 * of 200,000 cycles, of which it waits for twenty at a time. With "train SECONDS [MIB]" it multiplies matrices, and says how many
 * of them a second, and how many steps of a loop as training has it: a batch goes to the card, 64 products, and a number comes
 * back. So much more memory as is named lies on the card meanwhile, and is looked at in the end.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../build/remote_calls.h"

static const char code[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry count(.param .u64 p, .param .u32 n)\n{\n"
	"  .reg .u64 %a; .reg .u32 %v, %old;\n"
	"  ld.param.u64 %a, [p]; ld.param.u32 %v, [n]; cvta.to.global.u64 %a, %a;\n"
	"  atom.global.add.u32 %old, [%a], %v;\n  ret;\n}\n"
	".visible .entry spin(.param .u64 cycles)\n{\n"
	"  .reg .u64 %c, %s, %t; .reg .pred %p;\n"
	"  ld.param.u64 %c, [cycles]; mov.u64 %s, %clock64;\n"
	"again: mov.u64 %t, %clock64; sub.u64 %t, %t, %s; setp.lt.u64 %p, %t, %c; @%p bra again;\n  ret;\n}\n"
	".visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n{\n"
	"  .reg .u64 %a, %b, %c, %o, %row; .reg .u32 %n, %x, %y, %t, %i; .reg .f32 %f, %g, %s; .reg .pred %p;\n"
	"  ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %c, [c]; ld.param.u32 %n, [n];\n"
	"  mov.u32 %x, %ctaid.x; mov.u32 %t, %ntid.x; mov.u32 %i, %tid.x; mad.lo.u32 %x, %x, %t, %i; mov.u32 %y, %ctaid.y;\n"
	"  mul.lo.u32 %y, %y, %n; mul.wide.u32 %o, %y, 4; add.u64 %a, %a, %o; mul.wide.u32 %o, %x, 4; add.u64 %b, %b, %o;\n"
	"  mul.wide.u32 %row, %n, 4; mov.f32 %s, 0f00000000; mov.u32 %i, 0;\n"
	"more: ld.global.f32 %f, [%a]; ld.global.f32 %g, [%b]; fma.rn.f32 %s, %f, %g, %s;\n"
	"  add.u64 %a, %a, 4; add.u64 %b, %b, %row; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra more;\n"
	"  add.u32 %y, %y, %x; mul.wide.u32 %o, %y, 4; add.u64 %c, %c, %o; st.global.f32 [%c], %s;\n  ret;\n}\n";

static struct driver cu;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void ok(int r, const char *what)
{
	if (r) {
		printf("%s: error %d\n", what, r);
		exit(1);
	}
}
#define OK(call) ok(cu.call, #call)

static int by_size(const void *a, const void *b) { return *(double *)a < *(double *)b ? -1 : *(double *)a > *(double *)b; }

static void launches(void *fn, CUdeviceptr p, int count)
{
	unsigned one = 1, got = 0;
	void *params[] = {&p, &one};
	double best = 0;

	OK(cuMemsetD32_v2(p, 0, 1));
	OK(cuCtxSynchronize());
	for (int round = 0; round < 5; round++) {
		double from = now();
		for (int i = 0; i < count; i++)
			OK(cuLaunchKernel(fn, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		OK(cuCtxSynchronize());
		double rate = count / (now() - from);
		if (rate > best)
			best = rate;
	}
	OK(cuMemcpyDtoH_v2(&got, p, 4));
	printf("figure launches_per_second %.0f 1/s\n", best);
	if (got != (unsigned)count * 5) {
		printf("%u launches of %u were counted\n", got, (unsigned)count * 5);
		exit(1);
	}
}

static void waits(int count)
{
	double *t = malloc(sizeof *t * (size_t)count);

	for (int i = 0; i < count; i++) {
		double from = now();
		OK(cuStreamSynchronize(NULL));
		t[i] = now() - from;
	}
	qsort(t, (size_t)count, sizeof *t, by_size);
	printf("figure synchronize_p50 %.2f us\nfigure synchronize_p99 %.2f us\n", t[count / 2] * 1e6, t[count * 99 / 100] * 1e6);
	free(t);
}

static void copies(size_t bytes)
{
	CUdeviceptr p;
	void *host;
	double to = 0, from = 0;

	OK(cuMemAlloc_v2(&p, bytes));
	OK(cuMemHostAlloc(&host, bytes, 0));
	for (size_t i = 0; i < bytes / 8; i++)
		((unsigned long long *)host)[i] = i * 0x9e3779b97f4a7c15;
	for (int round = 0; round < 5; round++) {
		double t = now();
		OK(cuMemcpyHtoD_v2(p, host, bytes));
		OK(cuCtxSynchronize());
		double rate = (double)bytes / (now() - t) / 1e9;
		to = rate > to ? rate : to;
		memset(host, 0, bytes);
		t = now();
		OK(cuMemcpyDtoH_v2(host, p, bytes));
		rate = (double)bytes / (now() - t) / 1e9;
		from = rate > from ? rate : from;
	}
	for (size_t i = 0; i < bytes / 8; i++)
		if (((unsigned long long *)host)[i] != i * 0x9e3779b97f4a7c15) {
			printf("wrong at %zu\n", i * 8);
			exit(1);
		}
	printf("figure copy_to_card %.2f GB/s\nfigure copy_from_card %.2f GB/s\n", to, from);
}

static void work(void *mod, double seconds)
{
	unsigned long long cycles = 200000;
	void *params[] = {&cycles}, *fn;
	double from, done = 0;

	OK(cuModuleGetFunction(&fn, mod, "spin"));
	for (from = now(); now() - from < seconds; done += 20) {
		for (int i = 0; i < 20; i++)
			OK(cuLaunchKernel(fn, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		OK(cuCtxSynchronize());
	}
	printf("figure kernels_per_second %.1f 1/s\n", done / (now() - from));
}

#define SIDE 256

/* A step as training has it: most calls need no answer, one does. Beside it lies as much memory as was asked for, in which nothing changes. */
static void train(void *mod, double seconds, size_t beside)
{
	static float ones[SIDE * SIDE], back[SIDE * SIDE];
	CUdeviceptr a, b, c;
	unsigned n = SIDE;
	void *fn, *params[] = {&a, &b, &c, &n};
	double from, steps, done = 0;
	float loss;
	CUdeviceptr rest = 0;
	unsigned *seen = malloc(beside);

	if (beside) {
		OK(cuMemAlloc_v2(&rest, beside));
		OK(cuMemsetD32_v2(rest, 0x5eed5eed, beside / 4));
	}
	for (int i = 0; i < SIDE * SIDE; i++)
		ones[i] = 1;
	OK(cuModuleGetFunction(&fn, mod, "product"));
	OK(cuMemAlloc_v2(&a, sizeof ones));
	OK(cuMemAlloc_v2(&b, sizeof ones));
	OK(cuMemAlloc_v2(&c, sizeof ones));
	OK(cuMemcpyHtoD_v2(b, ones, sizeof ones));
	OK(cuMemcpyHtoD_v2(a, ones, sizeof ones));
	for (from = now(); now() - from < seconds; done += 500) {
		for (int i = 0; i < 500; i++)
			OK(cuLaunchKernel(fn, SIDE / 128, SIDE, 1, 128, 1, 1, 0, NULL, params, NULL));
		OK(cuCtxSynchronize());
	}
	printf("figure products_per_second %.0f 1/s\n", done / (now() - from));
	for (from = now(), done = 0; now() - from < seconds; done++) {
		OK(cuMemcpyHtoDAsync_v2(a, ones, sizeof ones, NULL));
		for (int i = 0; i < 64; i++)
			OK(cuLaunchKernel(fn, SIDE / 128, SIDE, 1, 128, 1, 1, 0, NULL, params, NULL));
		OK(cuMemcpyDtoH_v2(&loss, c, sizeof loss));
	}
	steps = done / (now() - from);
	OK(cuMemcpyDtoH_v2(back, c, sizeof back));
	for (int i = 0; i < SIDE * SIDE; i++)
		if (back[i] != SIDE) {
			printf("wrong at %d: %f\n", i, (double)back[i]);
			exit(1);
		}
	if (beside)
		OK(cuMemcpyDtoH_v2(seen, rest, beside));
	for (size_t i = 0; i < beside / 4; i++)
		if (seen[i] != 0x5eed5eed) {
			printf("wrong beside at %zu: %x\n", i, seen[i]);
			exit(1);
		}
	free(seen);
	printf("figure steps_per_second %.1f 1/s\n", steps);
}

int main(int argc, char **argv)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *ctx, *mod, *fn;
	char name[256];
	CUdeviceptr p;
	int works = argc > 2 && !strcmp(argv[1], "work"), trains = argc > 2 && !strcmp(argv[1], "train"), scale = argc > 1 && !works && !trains ? atoi(argv[1]) : 1;

	if (!lib) {
		printf("%s\n", dlerror());
		return 1;
	}
#define LOAD(name, mode) cu.name = (fn_##name)dlsym(lib, #name);
	EACH_CALL(LOAD)
	OK(cuInit(0));
	OK(cuDeviceGetName(name, sizeof name, 0));
	printf("%s\n", name);
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleLoadData(&mod, (void *)code));
	if (works) {
		work(mod, atof(argv[2]));
		return 0;
	}
	if (trains) {
		train(mod, atof(argv[2]), argc > 3 ? (size_t)atoi(argv[3]) << 20 : 0);
		return 0;
	}
	OK(cuModuleGetFunction(&fn, mod, "count"));
	OK(cuMemAlloc_v2(&p, 4));
	launches(fn, p, 100000 / scale);
	waits(20000 / scale);
	copies(((size_t)1 << 30) / (size_t)scale);
	return 0;
}
