/* Containers on one card with the node's arbiter, some of them hostile, against the tests' driver. */
#include <sys/mman.h>
#include "calls.h"

static struct stub_kernel work = {200000, NULL};
#define SHARE(percent) "device * memory 536870912 compute " #percent

static CUresult try_launch(void) { return cuLaunchKernel(&work, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }

static void launch(int times)
{
	for (int i = 0; i < times; i++)
		EQUAL(try_launch(), 0);
	EQUAL(real_cuCtxSynchronize(), 0);
}

/* Another container on the same node, of which this process becomes one when it enters. */
static void container(const char *name, const char *limits, char *root)
{
	char path[400], text[1024];

	snprintf(root, 300, "%s/%s", check_root, name);
	check_share(root, name);
	snprintf(path, sizeof path, "/%s/etc/elastic-gpu/limits", name);
	snprintf(text, sizeof text, "elastic-gpu 1\ncontainer %s\n%s\n", name, limits);
	check_write(path, text);
}

static void enter(const char *root)
{
	setenv("ELASTICGPU_ROOT", root, 1);
	EQUAL(cuInit(0), 0);
	EQUAL(cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	EQUAL(real_cuCtxSetCurrent(ctx), 0);
}

static const char *card_name(void) { return "GPU-11111111-1111-1111-1111-111111111120"; }

static struct decision_file *decisions(const char *root)
{
	char path[600], why[700];
	snprintf(path, sizeof path, "%s/etc/elastic-gpu/turns/%s", root, card_name());
	struct decision_file *d = shared_map_made(path, sizeof *d, true, why, sizeof why);
	CHECK(d);
	return d;
}

static void request_path(const char *root, char *path, size_t size)
{
	snprintf(path, size, "%s/run/elastic-gpu-requests/%s", root, card_name());
}

/* ---- hostile ---- */

/* Everything a container can do to the one file it may write, for ever. */
static void vandalise(const char *root)
{
	char path[600], noise[4096];
	uint64_t x = 88172645463325252;
	struct stat s;
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	request_path(root, path, sizeof path);
	fd = open(path, O_RDWR);
	CHECK(fd >= 0);
	for (;;) {
		for (size_t i = 0; i + 8 <= sizeof noise; i += 8) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			memcpy(noise + i, &x, 8);
		}
		CHECK(pwrite(fd, noise, sizeof noise, (off_t)(x % 8192)) > 0);
		for (unsigned row = 0; row < MAX_ROWS; row++) { /* all of them want the turn and live */
			unsigned wants[4] = {1, (unsigned)x, (unsigned)(x >> 32) + row, UINT32_MAX};
			CHECK(pwrite(fd, wants, sizeof wants, (off_t)(offsetof(struct request_file, row) + row * sizeof wants)) > 0);
		}
		switch (x % 16) {
		case 0: CHECK(ftruncate(fd, 0) == 0); break;
		case 1: CHECK(ftruncate(fd, (off_t)1 << 40) == 0); break;
		case 2: CHECK(ftruncate(fd, (off_t)(x >> 8) % 10304) == 0); break;
		case 3: CHECK(ftruncate(fd, sizeof(struct request_file)) == 0); break;
		case 4: CHECK(fstat(fd, &s) == 0 && fchmod(fd, (mode_t)(x >> 32) % 0777) == 0); break;
		}
	}
}

/* Victims finish their work by turns of the arbiter, beside three containers that fuzz and truncate their own files. */
static void a_hostile_neighbour_stops_nobody(void)
{
	char roots[5][300], name[8];
	pid_t hostile[3], victim[2], arbiter;
	int status;

	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof name, "c%d", i);
		container(name, i < 3 ? SHARE(10) : SHARE(35), roots[i]);
	}
	arbiter = check_arbiter();
	UNTIL(atomic_load(&decisions(roots[4])->beat));
	for (int i = 0; i < 3; i++)
		CHILD(hostile[i], vandalise(roots[i]));
	for (int i = 0; i < 2; i++)
		CHILD(victim[i], { enter(roots[3 + i]); launch(300); });
	for (int i = 0; i < 2; i++)
		check_exit(victim[i]);
	for (int i = 0; i < 2; i++)
		UNTIL(atomic_load(&decisions(roots[3 + i])->row[0].turn) >= 2); /* turns were given, and given back */
	EQUAL(waitpid(arbiter, &status, WNOHANG), 0);
	for (int i = 0; i < 3; i++)
		check_stop(hostile[i]);
	/* their files have their size again, and one that is made anew in the place of one of them, and behaves, owes nothing */
	char path[600];
	struct stat s;
	request_path(roots[0], path, sizeof path);
	UNTIL(stat(path, &s) == 0 && s.st_size == sizeof(struct request_file));
	snprintf(path, sizeof path, "%s/etc/elastic-gpu/turns/%s", roots[0], card_name());
	CHECK(unlink(path) == 0);
	check_file(roots[0], "/etc/elastic-gpu/turns", 0, sizeof(struct decision_file));
	CHILD(victim[0], { enter(roots[0]); launch(20); });
	check_exit(victim[0]);
}

/* What is not a file of its size is not opened as one, and the arbiter goes on. */
static void what_is_no_file_is_not_read(void)
{
	char path[600], odd[700];
	int fd;

	request_path(check_root, path, sizeof path);
	EQUAL(request_open("/dev/zero"), -1);
	EQUAL(request_open(check_root), -1);
	snprintf(odd, sizeof odd, "%s.fifo", path);
	CHECK(mkfifo(odd, 0666) == 0);
	EQUAL(request_open(odd), -1);
	snprintf(odd, sizeof odd, "%s.link", path);
	CHECK(symlink(path, odd) == 0);
	EQUAL(request_open(odd), -1);
	fd = request_open(path);
	CHECK(fd >= 0 && !request_restore(fd));
	CHECK(truncate(path, 100) == 0 && request_restore(fd) && !request_restore(fd));
}

/* What a container cut off its file is not there: those processes want nothing. */
static void a_short_file_wants_nothing(void)
{
	struct card *c = calloc(1, sizeof *c);
	struct request all[MAX_ROWS];
	char path[600];
	int fd;

	for (unsigned i = 0; i < MAX_ROWS; i++)
		all[i] = (struct request){.wants = 1, .beat = i + 1};
	request_path(check_root, path, sizeof path);
	fd = request_open(path);
	CHECK(c && fd >= 0 && pwrite(fd, all, sizeof all, offsetof(struct request_file, row)) == sizeof all);
	card_start(c, 1);
	EQUAL(card_tenant_join(c, 3000, false, 1), 0);
	CHECK(request_read(fd, c, 0, true, 2));
	CHECK(c->tenant[0].rows == MAX_ROWS && c->tenant[0].row[0].wants && c->tenant[0].row[MAX_ROWS - 1].wants);
	CHECK(ftruncate(fd, offsetof(struct request_file, row) + 10 * sizeof *all) == 0 && request_read(fd, c, 0, true, 3));
	for (int i = 0; i < MAX_ROWS; i++)
		EQUAL(c->tenant[0].row[i].wants, i < 10);
}

static void a_killed_process_does_not_stop_the_card(void)
{
	char roots[2][300];
	pid_t first, second;

	container("a", SHARE(50), roots[0]);
	container("b", SHARE(50), roots[1]);
	check_arbiter();
	UNTIL(atomic_load(&decisions(roots[1])->beat));
	CHILD(first, { enter(roots[0]); for (;;) launch(1); });
	UNTIL(atomic_load(&decisions(roots[0])->row[0].turn) & 1); /* it has the turn */
	check_stop(first);
	CHILD(second, { enter(roots[1]); launch(200); });
	check_exit(second);
	UNTIL(atomic_load(&decisions(roots[1])->row[0].turn) >= 2);
}

/* ---- arbiters that come and go ---- */

static void work_goes_on_while_there_is_no_arbiter(void)
{
	pid_t arbiter = check_arbiter();
	unsigned before;

	begin("", SHARE(30));
	_Atomic unsigned *turn = &decisions(check_root)->row[0].turn;
	UNTIL(atomic_load(&session.device[0].decision->beat));
	launch(100);
	UNTIL(atomic_load(turn) >= 2);
	check_stop(arbiter);
	/* a turn of its time may still be open for as long as the arbiter may be late */
	UNTIL(!arbiter_there(&session.device[0], now_ns()));
	before = atomic_load(turn);
	launch(200);
	EQUAL(atomic_load(turn), before);
	CHECK(atomic_load(&session.device[0].request->refilled) > 0); /* it held itself to its own credit */
	arbiter = check_arbiter();
	UNTIL(arbiter_there(&session.device[0], now_ns()));
	while (atomic_load(turn) <= before + 1) /* until it had a turn, and gave it back: what it began by its own credit needs none */
		launch(20);
	check_stop(arbiter);
}

/* Two arbiters would give one turn twice: the second waits until the first has ended. */
static void one_arbiter_at_a_time(void)
{
	struct decision_file *d = decisions(check_root);
	char node[400];
	pid_t first, second;
	int64_t beat;

	snprintf(node, sizeof node, "%s/node", check_root);
	EQUAL(arbiter_check(node), 1);
	first = check_arbiter();

	check_limits("", SHARE(30));
	UNTIL(atomic_load(&d->beat));
	UNTIL(arbiter_check(node) == 0);
	second = check_arbiter();
	check_stop(first);
	beat = atomic_load(&d->beat);
	UNTIL(atomic_load(&d->beat) > beat);
	check_stop(second);
}

/* A container that is made anew in the same place has other files. */
static void new_files_are_found(void)
{
	char path[600];

	check_limits("", SHARE(30));
	check_arbiter();
	UNTIL(atomic_load(&decisions(check_root)->beat));
	snprintf(path, sizeof path, "%s/etc/elastic-gpu/turns/%s", check_root, card_name());
	CHECK(unlink(path) == 0);
	check_file(check_root, "/etc/elastic-gpu/turns", 0, sizeof(struct decision_file));
	UNTIL(atomic_load(&decisions(check_root)->beat));
}

/* ---- no compute without a limit ---- */

static void process_257_gets_no_launches(void)
{
	char why[256];
	CUdeviceptr p;

	check_limits("", SHARE(30));
	struct container_file *f = container_open(path_container(), why, sizeof why);
	CHECK(f);
	for (int i = 0; i < MAX_ROWS; i++) /* 256 processes, all alive */
		atomic_store(&f->process[i].owner, process_word(getppid()));
	begin("", SHARE(30));
	EQUAL(try_launch(), CUDA_ERROR_NOT_PERMITTED);
	EQUAL(cuMemAlloc_v2(&p, MiB), 0); /* memory it has */
	EQUAL(cuMemFree_v2(p), 0);
	EQUAL(*(_Atomic uint64_t *)driver("stub_launched"), 0);
}

static void container_65_gets_no_launches(void)
{
	char root[300], name[24], path[600], away[600];
	pid_t arbiter;

	check_limits("", SHARE(1));
	snprintf(path, sizeof path, "%s/node/shares/0", check_root);
	snprintf(away, sizeof away, "%s/later", check_root);
	CHECK(rename(path, away) == 0);
	for (int i = 1; i <= MAX_TENANTS; i++) {
		snprintf(name, sizeof name, "t%d", i);
		container(name, SHARE(1), root);
	}
	arbiter = check_arbiter();
	for (int i = 1; i <= MAX_TENANTS; i++) {
		snprintf(root, sizeof root, "%s/t%d", check_root, i);
		struct decision_file *d = decisions(root);
		UNTIL(atomic_load(&d->beat));
		EQUAL(atomic_load(&d->refused), REFUSED_NOT);
	}
	CHECK(rename(away, path) == 0);
	UNTIL(atomic_load(&decisions(check_root)->refused));
	begin("", SHARE(1));
	EQUAL(try_launch(), CUDA_ERROR_NOT_PERMITTED);
	/* another goes: there is a place for it now */
	snprintf(path, sizeof path, "%s/node/shares/t7", check_root);
	CHECK(rename(path, away) == 0);
	UNTIL(try_launch() == CUDA_SUCCESS);
	check_stop(arbiter);
}

static void without_its_files_a_container_gets_no_launches(void)
{
	char path[600];
	CUdeviceptr p;
	pid_t pid;

	for (int i = 0; i < 3; i++) {
		CHECK(snprintf(path, sizeof path, "%s%s/%s", check_root, i == 1 ? "/etc/elastic-gpu/turns" : "/run/elastic-gpu-requests", card_name()) > 0);
		CHECK(i < 2 ? unlink(path) == 0 : truncate(path, 4096) == 0);
		CHILD(pid, {
			begin_512(); /* also with the whole card: nothing would take its turns when a neighbour comes */
			EQUAL(try_launch(), CUDA_ERROR_NOT_PERMITTED);
			EQUAL(cuMemAlloc_v2(&p, MiB), 0);
		});
		check_exit(pid);
		check_file(check_root, "/etc/elastic-gpu/turns", 0, sizeof(struct decision_file));
		check_file(check_root, "/run/elastic-gpu-requests", 0, sizeof(struct request_file));
	}
	CHILD(pid, { begin_512(); launch(1); });
	check_exit(pid);
}

/* ---- cards of one node that are shared in different ways ---- */

#define CARD "GPU-11111111-1111-1111-1111-11111111112"
#define OF_CARD(card, rest) "device " CARD #card " memory 536870912 " rest

/* The agent makes files for the card that a container has, and for no other. */
static void has_card(const char *root, int card)
{
	static const char *const folders[] = {"etc/elastic-gpu/turns", "run/elastic-gpu-requests"};
	char path[600];

	for (int other = 0; other < 4; other++)
		for (int i = 0; i < 2 && other != card; i++) {
			snprintf(path, sizeof path, "%s/%s/" CARD "%d", root, folders[i], other);
			CHECK(unlink(path) == 0);
		}
}

static void enter_card(const char *root, const char *card)
{
	setenv("STUB_FIRST", card, 1);
	enter(root);
	EQUAL(session.devices, 1);
	CHECK(!strcmp(session.device[0].uuid + strlen(session.device[0].uuid) - 1, card));
}

static void in_time(const char *root)
{
	enter_card(root, "0");
	launch(100);
	CHECK(!session.device[0].mps && !getenv("CUDA_MPS_PIPE_DIRECTORY"));
	CHECK(atomic_load(&session.device[0].gate->waited_ns) > 0);
	CHECK(atomic_load(&session.device[0].decision->beat) && atomic_load(&session.device[0].decision->row[0].turn));
}

static void in_space(const char *root, const char *percent)
{
	enter_card(root, "1");
	CHECK(session.device[0].mps && !strcmp(driver("stub_mps_percent"), percent));
	launch(100);
	EQUAL(atomic_load(&session.device[0].gate->waited_ns), 0);
	UNTIL(atomic_load(&session_row()->busy_ns[0]) > 0);
	EQUAL(atomic_load(&session.device[0].decision->beat), 0); /* the arbiter has nothing to say of that card */
}

static void one_card_in_time_and_one_in_space(void)
{
	static const char *const limits[] = {OF_CARD(0, "compute 30"), OF_CARD(0, "compute 70"), OF_CARD(1, "compute 30 sharing space"), OF_CARD(1, "compute 60 sharing space")};
	char roots[4][300], name[8], path[600];
	pid_t one[4], arbiter;

	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof name, "c%d", i);
		container(name, limits[i], roots[i]);
		has_card(roots[i], i / 2);
		snprintf(path, sizeof path, "/c%d/run/nvidia-mps", i); /* the daemon of the second card, as its containers see it */
		if (i / 2) {
			check_folder(check_root, path);
			snprintf(path, sizeof path, "/c%d/run/nvidia-mps/control", i);
			check_write(path, "");
		}
	}
	arbiter = check_arbiter();
	for (int i = 0; i < 2; i++)
		UNTIL(atomic_load(&decisions(roots[i])->beat));
	CHILD(one[0], in_time(roots[0]));
	CHILD(one[1], in_time(roots[1]));
	CHILD(one[2], in_space(roots[2], "30.00"));
	CHILD(one[3], in_space(roots[3], "60.00"));
	for (int i = 0; i < 4; i++)
		check_exit(one[i]);
	/* the daemon ends: its card has no launches, and the other one has its turns still */
	for (int i = 2; i < 4; i++) {
		snprintf(path, sizeof path, "%s/run/nvidia-mps/control", roots[i]);
		CHECK(unlink(path) == 0);
	}
	CHILD(one[2], { enter_card(roots[2], "1"); EQUAL(try_launch(), CUDA_ERROR_NOT_PERMITTED); });
	CHILD(one[0], in_time(roots[0]));
	check_exit(one[2]);
	check_exit(one[0]);
	check_stop(arbiter);
	/* and where there is no arbiter the second card misses nothing */
	snprintf(path, sizeof path, "/c2/run/nvidia-mps/control");
	check_write(path, "");
	CHILD(one[2], in_space(roots[2], "30.00"));
	check_exit(one[2]);
}

MAIN(T(one_card_in_time_and_one_in_space), T(a_hostile_neighbour_stops_nobody), T(what_is_no_file_is_not_read), T(a_short_file_wants_nothing), T(a_killed_process_does_not_stop_the_card),
	T(work_goes_on_while_there_is_no_arbiter), T(one_arbiter_at_a_time), T(new_files_are_found), T(process_257_gets_no_launches),
	T(container_65_gets_no_launches), T(without_its_files_a_container_gets_no_launches))
