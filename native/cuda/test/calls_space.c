/* Containers that run at once on a card, under MPS, against the tests' driver. */
#include "calls.h"

#define THIRTY "device * memory 536870912 compute 30 sharing space"

static CUresult launch(struct stub_kernel *k, CUstream s) { return cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL); }
static struct gate *gate(void) { return atomic_load(&session.device[0].gate); }
static uint64_t busy(void) { return atomic_load(&session_row()->busy_ns[0]); }

/* The daemon of the card, as a container sees it. */
static void daemon_runs(void)
{
	check_folder(check_root, "/run/nvidia-mps");
	check_write("/run/nvidia-mps/control", "");
}

static void launches_do_not_wait_and_are_counted(void)
{
	struct stub_kernel k = {2 * MS, NULL};

	daemon_runs();
	begin("", THIRTY);
	EQUAL(real_cuStreamCreate(&stream, 1), 0);
	EQUAL(busy(), 0);
	for (int i = 0; i < 20; i++) {
		EQUAL(launch(&k, i % 2 ? stream : NULL), 0);
		EQUAL(cuLaunchKernel_ptsz(&k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
	}
	EQUAL(atomic_load(&gate()->waited_ns), 0);
	EQUAL(real_cuCtxSynchronize(), 0);
	/* 40 ms of work in the longest stream, of which the process has 30 % of the card */
	UNTIL(busy() >= 11 * (uint64_t)MS);
	UNTIL(atomic_load(&gate()->state) == GATE_CLOSED);
	/* a pause is not counted, and what comes after it is */
	uint64_t before = busy();
	EQUAL(launch(&k, stream), 0);
	EQUAL(atomic_load(&gate()->waited_ns), 0);
	UNTIL(busy() > before);
}

/* The driver's own share is what was granted, whatever the program has put into its environment. */
static void a_program_cannot_ask_for_more(void)
{
	daemon_runs();
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere", 1);
	setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100", 1);
	setenv("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING", "1", 1);
	begin("", THIRTY);
	CHECK(session.device[0].mps);
	CHECK(!strcmp(driver("stub_mps_percent"), "30.00"));
	CHECK(!getenv("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"));
}

/* Without the daemon the driver would give a process the whole card. */
static void without_a_daemon_there_are_no_launches(void)
{
	struct stub_kernel k = {1000, NULL};
	CUdeviceptr p;

	begin("", THIRTY);
	CHECK(!session.device[0].mps);
	EQUAL(launch(&k, NULL), CUDA_ERROR_NOT_PERMITTED);
	EQUAL(cuMemAlloc_v2(&p, MiB), 0);
}

static void memory_is_held_and_moves(void)
{
	struct stub_kernel k = {MS, NULL};
	struct swap_result r;
	uint64_t missing;
	CUdeviceptr p, more;

	daemon_runs();
	begin("swap on\n", THIRTY);
	EQUAL(used(), CONTEXT); /* NVML has a list of its own for clients of MPS */
	EQUAL(cuMemAlloc_v2(&p, 64 * MiB), 0);
	fill(p, 64 * MiB, 7);
	EQUAL(cuMemAlloc_v2(&more, LIMIT), CUDA_ERROR_OUT_OF_MEMORY);
	for (int i = 0; i < 3; i++) {
		EQUAL(launch(&k, NULL), 0);
		swap_out(UINT64_MAX, &r);
		CHECK(r.done && swap_is_out());
		EQUAL(stub_card_used(0), CONTEXT);
		swap_in(&r, &missing);
		CHECK(r.done && filled(p, 64 * MiB, 7));
	}
}

/* The arbiter serves the containers that take turns, and leaves the others alone. */
static void the_arbiter_leaves_them_alone(void)
{
	char root[300], path[600], why[700];
	struct decision_file *turns, *space;
	unsigned char id[16];

	stub_uuid(0, id);
	snprintf(root, sizeof root, "%s/other", check_root);
	check_share(root, "1");
	check_write("/other/etc/elastic-gpu/limits", "elastic-gpu 1\ncontainer other\ndevice * memory 1 compute 50\n");
	check_limits("", THIRTY);
	snprintf(path, sizeof path, "%s/etc/elastic-gpu/turns/GPU-11111111-1111-1111-1111-1111111111%02x", root, id[15]);
	turns = shared_map_made(path, sizeof *turns, true, why, sizeof why);
	snprintf(path, sizeof path, "%s/etc/elastic-gpu/turns/GPU-11111111-1111-1111-1111-1111111111%02x", check_root, id[15]);
	space = shared_map_made(path, sizeof *space, true, why, sizeof why);
	CHECK(turns && space);
	check_arbiter();
	for (int looks = 0; looks < 3; looks++) { /* shares are looked for every half second, between beats */
		int64_t beat = atomic_load(&turns->beat);
		UNTIL(atomic_load(&turns->beat) > beat + 600 * MS);
	}
	EQUAL(atomic_load(&space->beat), 0);
	/* a class that is changed is seen: the container takes turns from then on */
	check_limits("", "device * memory 536870912 compute 30");
	UNTIL(atomic_load(&space->beat) > 0);
}

MAIN(T(launches_do_not_wait_and_are_counted), T(a_program_cannot_ask_for_more), T(without_a_daemon_there_are_no_launches),
	T(memory_is_held_and_moves), T(the_arbiter_leaves_them_alone))
