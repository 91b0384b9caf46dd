/* Launches that take turns, memory that goes out and comes back, and the control socket, against the tests' driver. */
#include "calls.h"

/* ---- turns ---- */

static void launch(struct stub_kernel *k, CUstream s)
{
	EQUAL(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), 0);
}

/* As the arbiter has it. */
static struct decision_file *decisions(const char *root)
{
	char path[600], why[700];
	snprintf(path, sizeof path, "%s/etc/elastic-gpu/turns/%s", root, session.device[0].uuid);
	struct decision_file *d = shared_map_made(path, sizeof *d, true, why, sizeof why);
	CHECK(d);
	return d;
}

static uint64_t launched(void) { return atomic_load((_Atomic uint64_t *)driver("stub_launched")); }

static void every_launch_pays_and_gets_through(void)
{
	struct stub_kernel k = {200000, NULL};
	CUlaunchConfig config = {.stream = NULL};
	CUgraphExec exec;
	CUdeviceptr p;

	begin("", "device * memory 536870912 compute 30");
	EQUAL(cuMemAlloc_v2(&p, MiB), 0);
	EQUAL(real_cuStreamCreate(&stream, 1), 0);
	EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
	launch(&k, stream); /* captured, not run: needs no turn */
	EQUAL(launched(), 0);
	EQUAL(atomic_load(&session.container->process[atomic_load(&session.process)].busy_ns[0]), 0);
	EQUAL(cuStreamEndCapture(stream, &graph), 0);
	size_t nodes;
	EQUAL(((CUresult (*)(CUgraph, size_t *))driver("cuGraphGetNodeCount"))(graph, &nodes), 0);
	EQUAL(nodes, 1); /* nothing of ours got into the graph */
	EQUAL(cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
	for (int i = 0; i < 40; i++) {
		launch(&k, NULL);
		launch(&k, stream);
		config.stream = stream;
		EQUAL(cuLaunchKernelEx(&config, &k, NULL, NULL), 0);
		EQUAL(cuLaunchCooperativeKernel(&k, 1, 1, 1, 1, 1, 1, 0, stream, NULL), 0);
		EQUAL(cuLaunchKernel_ptsz(&k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
		EQUAL(cuGraphLaunch(exec, stream), 0);
		EQUAL(cuMemsetD32Async(p, 7, 16, stream), 0);
	}
	EQUAL(launched(), 240);
	EQUAL(real_cuCtxSynchronize(), 0);
	/* 32 ms of work in the longest stream were charged to the container, within 3 %: turns are measured in ticks */
	while (atomic_load(&session.container->process[atomic_load(&session.process)].busy_ns[0]) < 31 * (uint64_t)MS)
		sleep_ns(MS);
	/* with 30 % of the time, launches have waited for the rest of it, and that is reported */
	CHECK(atomic_load(&session.device[0].gate->waited_ns) > 0);
}

static void full_share_and_no_neighbour_needs_no_turns(void)
{
	struct stub_kernel k = {1000, NULL};
	begin_512();
	for (int i = 0; i < 100; i++)
		launch(&k, NULL);
	EQUAL(atomic_load(&session.device[0].gate->tracked), false);
	/* a neighbour comes, says the arbiter: from the next look on, turns are taken */
	atomic_store(&decisions(check_root)->contended, 1);
	compute_limit_reload(&session.device[0]);
	launch(&k, NULL);
	EQUAL(atomic_load(&session.device[0].gate->tracked), true);
}

static bool says_short_steps(void)
{
	int row = atomic_load(&session.process);
	return atomic_load(&session.device[0].request->short_steps[row / 64]) >> row % 64 & 1;
}

/* By each of the calls by which a program waits for its results. A busy machine may make a step long: then there are more of them. */
static void short_steps_are_said(void)
{
	struct stub_kernel k = {20000, NULL}, goes_on = {(LONG_STEP_NS + 20 * MS), NULL};
	CUdeviceptr p;
	CUevent event;
	int word;

	begin("", "device * memory 536870912 compute 30");
	EQUAL(cuMemAlloc_v2(&p, MiB), 0);
	EQUAL(real_cuEventCreate(&event, 0), 0);
	for (int how = 0; how < 4; how++) {
		while (!says_short_steps()) {
			launch(&k, NULL);
			EQUAL(how == 0 ? cuCtxSynchronize() : how == 1 ? cuStreamSynchronize(NULL) : how == 2 ? cuEventSynchronize(event) :
				cuMemcpyDtoH_v2(&word, p, sizeof word), 0);
		}
		while (says_short_steps()) {
			launch(&goes_on, NULL); /* and nobody waits */
			EQUAL(real_cuCtxSynchronize(), 0);
		}
	}
	while (!says_short_steps()) {
		launch(&k, NULL);
		EQUAL(cuStreamSynchronize_ptsz(NULL), 0);
	}
	compute_limit_end(&session.device[0]);
	CHECK(!says_short_steps()); /* the next process in this row has done nothing yet */
}

/* One that is expected back is not made to wait for a launch that has only just begun. */
static void a_long_launch_makes_way(void)
{
	struct stub_kernel k = {5 * MS, NULL};
	_Atomic unsigned gate = GATE_OPEN;
	struct decision_file *d;
	int64_t hour = 3600 * 1000 * MS, until;

	begin("", "device * memory 536870912 compute 100");
	d = decisions(check_root);
	atomic_store(&d->contended, 1);
	compute_limit_reload(&session.device[0]);
	EQUAL(real_cuStreamCreate(&stream, 1), 0);
	for (int i = 0; i < 4; i++) {
		launch(&k, stream);
		EQUAL(real_cuStreamSynchronize(stream), 0);
		while (!streams_idle(session.device[0].gate)) /* which learns what the launch took */
			;
	}
	stream_hold(NULL, now_ns() + hour, &gate, GATE_OPEN); /* nothing is known of that stream */
	stream_hold(stream, now_ns() + hour, &gate, GATE_OPEN); /* the launch is over long before */
	do { /* what it may give up has to be earned first */
		until = now_ns() + MS;
		stream_hold(stream, until, &gate, GATE_OPEN);
	} while (now_ns() < until);
	/* And so do launches, if the arbiter says so: it says when, and not for how long beyond a bound. */
	atomic_store(&d->backlog_us, 100);
	atomic_store(&d->hold_us, 4000000000u);
	do {
		EQUAL(real_cuStreamSynchronize(stream), 0);
		until = now_ns() + HOLD_MOST_NS;
		atomic_store(&d->hold_until, until);
		launch(&k, stream);
	} while (now_ns() < until);
	atomic_store(&d->hold_until, now_ns() + hour);
	launch(&k, stream);
}

static void *launch_many(void *arg)
{
	struct stub_kernel k = {20000, NULL};
	CUstream s;
	(void)arg;
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	for (int round = 0; round < 4; round++) {
		EQUAL(real_cuStreamCreate(&s, 1), 0);
		for (int i = 0; i < 100; i++)
			launch(&k, i % 3 ? s : NULL);
		EQUAL(cuStreamDestroy_v2(s), 0);
	}
	return NULL;
}

static void many_threads_and_streams(void)
{
	pthread_t t[8];
	begin("", "device * memory 536870912 compute 80");
	for (int i = 0; i < 8; i++)
		EQUAL(pthread_create(&t[i], NULL, launch_many, NULL), 0);
	for (int i = 0; i < 8; i++)
		EQUAL(pthread_join(t[i], NULL), 0);
	EQUAL(launched(), 8 * 4 * 100);
}

/* A kernel that ends only when a later launch has begun: holding that back for ever would be a deadlock. */
static void work_in_flight_may_wait_for_a_launch(void)
{
	struct stub_kernel longer = {400 * MS, NULL}, k = {1000, NULL};
	CUstream s2;
	begin("", "device * memory 536870912 compute 10");
	EQUAL(real_cuStreamCreate(&stream, 1), 0);
	EQUAL(real_cuStreamCreate(&s2, 1), 0);
	launch(&longer, stream);
	/* it outlasts the turn by far: launches still trickle through before it ends */
	while (atomic_load(&session.device[0].gate->state) != GATE_CLOSING)
		sleep_ns(MS);
	launch(&k, s2);
	CHECK(atomic_load(&session.device[0].gate->state) == GATE_CLOSING);
}

/* ---- swap ---- */

static void memory_goes_out_and_comes_back(void)
{
	static const uint64_t sizes[] = {100, 5000, 700000, MiB, 3 * MiB, 40 * MiB, 100, 64 * MiB};
	CUdeviceptr p[8], base;
	size_t size;
	struct swap_result r;
	uint64_t missing, before;

	begin_swap();
	for (int i = 0; i < 8; i++) {
		EQUAL(cuMemAlloc_v2(&p[i], sizes[i]), 0);
		fill(p[i], sizes[i], (unsigned)i * 1000);
	}
	EQUAL(cuMemGetAddressRange_v2(&base, &size, p[2] + 5), 0);
	EQUAL(base, p[2]);
	EQUAL(size, sizes[2]);
	before = used();
	for (int round = 0; round < 3; round++) {
		swap_out(UINT64_MAX, &r);
		CHECK(r.done && swap_is_out());
		EQUAL(r.bytes, before - CONTEXT);
		EQUAL(stub_card_used(0), CONTEXT); /* the card is free of it */
		EQUAL(used(), before);             /* and the container still owes it */
		overhead_refresh(&session.device[0]);
		EQUAL(used(), before);
		swap_in(&r, &missing);
		CHECK(r.done && !swap_is_out());
		for (int i = 0; i < 8; i++)
			CHECK(filled(p[i], sizes[i], (unsigned)i * 1000));
	}
	for (int i = 0; i < 8; i++)
		EQUAL(cuMemFree_v2(p[i]), 0);
	EQUAL(used(), CONTEXT);
	EQUAL(stub_card_used(0), CONTEXT);
}

static void part_of_it_can_go(void)
{
	CUdeviceptr p[4];
	struct swap_result r;
	uint64_t missing;
	begin_swap();
	for (int i = 0; i < 4; i++) {
		EQUAL(cuMemAlloc_v2(&p[i], 32 * MiB), 0);
		fill(p[i], 32 * MiB, (unsigned)i);
	}
	swap_out(40 * MiB, &r);
	EQUAL(r.bytes, 64 * MiB);
	EQUAL(stub_card_used(0), CONTEXT + 64 * MiB);
	swap_out(10 * MiB, &r);
	EQUAL(r.bytes, 32 * MiB);
	setenv("STUB_MEMORY", "134217728", 1); /* the card has become too small for all of it */
	swap_in(&r, &missing);
	CHECK(!r.done && missing > 0 && swap_is_out());
	EQUAL(stub_card_used(0), CONTEXT + 32 * MiB);
	setenv("STUB_MEMORY", "1073741824", 1);
	swap_in(&r, &missing);
	CHECK(r.done);
	for (int i = 0; i < 4; i++)
		CHECK(filled(p[i], 32 * MiB, (unsigned)i));
}

static _Atomic int copied;
static void *copy_back(void *arg)
{
	char c;
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuMemcpyDtoH_v2(&c, *(CUdeviceptr *)arg, 1), 0);
	EQUAL(c, 42);
	atomic_store(&copied, 1);
	return NULL;
}

static void calls_wait_while_it_is_out(void)
{
	CUdeviceptr p;
	struct swap_result r;
	uint64_t missing;
	pthread_t t;

	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 2 * MiB), 0);
	EQUAL(cuMemsetD8_v2(p, 42, 100), 0);
	swap_out(UINT64_MAX, &r);
	CHECK(r.done);
	EQUAL(pthread_create(&t, NULL, copy_back, &p), 0);
	for (int i = 0; i < 50; i++)
		sched_yield();
	EQUAL(atomic_load(&copied), 0);
	swap_in(&r, &missing);
	CHECK(r.done);
	EQUAL(pthread_join(t, NULL), 0);
	EQUAL(atomic_load(&copied), 1);
}

static void what_cannot_move_is_said_before_anything_moves(void)
{
	static const struct { unsigned way; const char *reason; } cases[] = {
		{8, "arrays"}, {11, "external"},
	};
	CUdeviceptr p;
	uint64_t key, missing;
	struct swap_result r;
	CUgraphicsResource g;

	setenv("STUB_DEFERRED", "off", 1); /* arrays that the driver makes only with memory */
	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 8 * MiB), 0);
	fill(p, 8 * MiB, 5);
	for (unsigned i = 0; i < sizeof cases / sizeof *cases - 1; i++) {
		EQUAL(ways[cases[i].way].take(32 * MiB, &key), 0);
		uint64_t before = stub_card_used(0);
		swap_out(UINT64_MAX, &r);
		CHECK(!r.done && strstr(r.why, cases[i].reason));
		EQUAL(stub_card_used(0), before);
		EQUAL(ways[cases[i].way].give(key), 0);
		swap_out(UINT64_MAX, &r);
		CHECK(r.done);
		swap_in(&r, &missing);
		CHECK(r.done && filled(p, 8 * MiB, 5));
	}
	EQUAL(cuGraphicsGLRegisterBuffer(&g, 1, 0), 0);
	swap_out(UINT64_MAX, &r);
	CHECK(!r.done && !strcmp(r.why, "graphics"));
	CHECK(!strcmp(swap_refusal(), "graphics"));
}

static void without_leave_nothing_swaps(void)
{
	struct swap_result r;
	CUdeviceptr p;
	begin_512();
	EQUAL(cuMemAlloc_v2(&p, MiB), 0);
	swap_out(UINT64_MAX, &r);
	CHECK(!r.done && strstr(r.why, "not allowed"));
}

/* Two containers of 300 MiB on a card of 512 beside their contexts, in turns. */
static void work_in_turns(const char *name, int rounds)
{
	char text[512];
	CUdeviceptr p[12];
	struct stub_kernel k = {MS, NULL};

	snprintf(text, sizeof text, "elastic-gpu 1\ncontainer %s\noversubscribe on\nquantum-ms 50\ndevice * memory 1073741824\n", name);
	snprintf(check_root, sizeof check_root, "%s", getenv("ELASTICGPU_ROOT"));
	check_write("/etc/elastic-gpu/limits", text);
	EQUAL(cuInit(0), 0);
	EQUAL(cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	for (int i = 0; i < 12; i++) {
		EQUAL(cuMemAlloc_v2(&p[i], 25 * MiB), 0);
		EQUAL(cuMemsetD8_v2(p[i], (unsigned char)i, 25 * MiB), 0);
	}
	for (int n = 0; n < rounds; n++) {
		unsigned char c;
		launch(&k, NULL);
		EQUAL(real_cuCtxSynchronize(), 0);
		EQUAL(cuMemcpyDtoH_v2(&c, p[n % 12] + (CUdeviceptr)n, 1), 0);
		EQUAL(c, n % 12);
	}
}

static void two_share_a_card_too_small_for_both(void)
{
	char roots[2][300];
	pid_t pids[2];

	setenv("STUB_MEMORY", "671088640", 1);
	check_arbiter();
	for (int i = 0; i < 2; i++) {
		snprintf(roots[i], sizeof roots[i], "%s/c%d", check_root, i);
		check_share(roots[i], i ? "b" : "a");
		CHILD(pids[i], { setenv("ELASTICGPU_ROOT", roots[i], 1); work_in_turns(i ? "b" : "a", 60); });
	}
	check_exit(pids[0]);
	check_exit(pids[1]);
}

/* ---- control ---- */

static bool answer(const char *request, bool trusted, const char *want)
{
	char reply[8192];
	int n = control_answer(request, trusted, reply, sizeof reply);
	EQUAL(n, strlen(reply));
	CHECK(reply[n - 1] == '\n');
	if (strstr(reply, want))
		return true;
	fprintf(stderr, "%s -> %s", request, reply);
	return false;
}

static void the_agent_asks(void)
{
	CUdeviceptr p;
	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 32 * MiB), 0);
	CHECK(answer("hello 1", false, "\"ok\":true,\"protocol\":1"));
	CHECK(answer("hello 2", false, "\"ok\":false,\"protocol\":1"));
	CHECK(answer("stats", false, "\"limit\":536870912,\"used\":100663296,\"held\":33554432,\"overhead\":67108864,\"swapped\":0"));
	CHECK(answer("stats", false, "\"immovable\":\"\""));
	CHECK(answer("out", false, "only the agent"));
	CHECK(answer("in", false, "only the agent"));
	CHECK(answer("prepare 1", false, "only the agent"));
	CHECK(answer("prepare 1000", true, "\"ok\":true"));
	CHECK(answer("out", true, "\"ok\":true,\"bytes\":33554432"));
	CHECK(answer("stats", false, "\"out\":true"));
	CHECK(answer("stats", false, "\"swapped\":33554432"));
	CHECK(answer("in", true, "\"ok\":true"));
	check_limits("swap on\n", "device * memory 805306368 compute 25");
	CHECK(answer("limits", false, "\"limit\":805306368"));
	CHECK(answer("stats", false, "\"compute\":25.00"));
	CHECK(answer("make me rich", true, "unknown request"));
	CHECK(answer("", true, "unknown request"));
}

static void *use_memory(void *arg)
{
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
	EQUAL(cuMemsetD32Async(*(CUdeviceptr *)arg, 1, 16, NULL), 0);
	return NULL;
}

/* How long it has not used its card; and while it is out, that it wants to. */
static void it_says_whether_it_is_idle(void)
{
	CUdeviceptr p;
	pthread_t t;
	int64_t before, after;

	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 2 * MiB), 0);
	while (memory_calls_idle(now_ns()) < 20 * MS)
		sched_yield();
	before = now_ns();
	EQUAL(cuMemsetD32Async(p, 1, 16, NULL), 0);
	after = now_ns();
	CHECK(memory_calls_idle(after) <= after - before);
	CHECK(answer("out", true, "\"ok\":true"));
	CHECK(answer("stats", false, "\"out\":true,\"wanted\":false"));
	EQUAL(pthread_create(&t, NULL, use_memory, &p), 0);
	while (!atomic_load(&memory_calls.waiting))
		sched_yield();
	CHECK(answer("stats", false, "\"out\":true,\"wanted\":true,\"idle_ns\":0"));
	CHECK(answer("in", true, "\"ok\":true"));
	EQUAL(pthread_join(t, NULL), 0);
	CHECK(answer("stats", false, "\"out\":false,\"wanted\":false"));
}

static void the_socket_answers(void)
{
	char command[900];
	begin_512();
	snprintf(command, sizeof command, "build/elastic-gpu-ctl %s/run/elastic-gpu/control/%d.sock stats | grep -q '\"container\":\"test\"'", check_root, (int)getpid());
	CHECK(system(command) == 0);
	snprintf(command, sizeof command, "build/elastic-gpu-ctl %s/run/elastic-gpu/control/%d.sock out | grep -q 'not allowed'", check_root, (int)getpid());
	CHECK(system(command) == 0);
}

static void only_the_agent_may_move_it(void)
{
	char command[900];
	check_write("/etc/elastic-gpu/limits", "elastic-gpu 1\ncontainer test\nswap on\ndevice * memory 536870912\n");
	EQUAL(cuInit(0), 0);
	snprintf(command, sizeof command, "build/elastic-gpu-ctl %s/run/elastic-gpu/control/%d.sock out | grep -q 'only the agent'", check_root, (int)getpid());
	CHECK(system(command) == 0);
}

static void the_driver_checkpoints_by_pid(void)
{
	typedef CUresult (*step)(int, void *);
	EQUAL(((step)driver("cuCheckpointProcessCheckpoint"))(7, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK(system("build/elastic-gpu-ctl checkpoint out 7 | grep -q '\"ok\":true'") == 0);
	CHECK(system("build/elastic-gpu-ctl checkpoint in 7 2>&1 | grep -q 'driver answered 1'") == 0); /* not checkpointed there */
}

static void an_export_that_is_refused_is_said(void)
{
	CUipcMemHandle h;
	CUdeviceptr p;
	char path[512], text[1024];
	int err = dup(2), fd;
	ssize_t n;

	setenv("STUB_NO_DESCRIPTORS", "1", 1); /* a card whose memory cannot be given away */
	begin_swap();
	EQUAL(cuMemAlloc_v2(&p, 4 * MiB), 0);
	snprintf(path, sizeof path, "%s/stderr", check_root);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && dup2(fd, 2) == 2);
	for (int i = 0; i < 3; i++)
		EQUAL(cuIpcGetMemHandle(&h, p), CUDA_ERROR_NOT_SUPPORTED);
	CHECK(dup2(err, 2) == 2);
	n = pread(fd, text, sizeof text - 1, 0);
	CHECK(n > 0);
	text[n] = 0;
	CHECK(strstr(text, "cannot be given to another process here (cuIpcGetMemHandle)"));
	CHECK(strchr(text, '\n') == text + n - 1); /* once */
}

MAIN(T(every_launch_pays_and_gets_through), T(short_steps_are_said), T(a_long_launch_makes_way), T(full_share_and_no_neighbour_needs_no_turns), T(many_threads_and_streams),
	T(work_in_flight_may_wait_for_a_launch), T(memory_goes_out_and_comes_back), T(part_of_it_can_go), T(calls_wait_while_it_is_out),
	T(what_cannot_move_is_said_before_anything_moves), T(without_leave_nothing_swaps), T(two_share_a_card_too_small_for_both),
	T(the_agent_asks), T(it_says_whether_it_is_idle), T(the_socket_answers), T(only_the_agent_may_move_it), T(an_export_that_is_refused_is_said), T(the_driver_checkpoints_by_pid))
