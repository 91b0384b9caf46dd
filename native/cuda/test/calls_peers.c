/* Processes of one container that share memory, of which some end, hang, answer late, or are not the library at all. */
#include "processes.h"
#include "../peer_socket.h"
#include "../shared_imports.h"

static void killed(struct process p)
{
	CHECK(kill(p.pid, SIGKILL) == 0 && waitpid(p.pid, NULL, 0) == p.pid);
}

/* It is not about to: it does nothing more. */
static void stopped(struct process p)
{
	int status;

	CHECK(kill(p.pid, SIGSTOP) == 0 && waitpid(p.pid, &status, WUNTRACED) == p.pid && WIFSTOPPED(status));
}

static void one_that_has_it_may_end(void)
{
	CUdeviceptr p;
	CUipcMemHandle h;
	struct process c;

	begin_two();
	c = start(check_root);
	p = alloc(a, 16 * MiB);
	TELL(a, DO_FILL, p, 16 * MiB, 4);
	h = name(a, p);
	open_in(b, h);
	open_in(c, h);
	OK(a, DO_FREE, p); /* it is theirs alone */
	killed(b);
	OK(a, DO_OUT);
	EQUAL(card(a), 2 * CONTEXT);
	killed(c); /* while it is away */
	OK(a, DO_IN);
	UNTIL(counted(a) == CONTEXT && card(a) == CONTEXT);
	p = alloc(a, 16 * MiB);
	b = start(check_root);
	open_in(b, name(a, p));
	stop(b); /* it ends as programs do, and closes nothing */
	OK(a, DO_OUT);
	OK(a, DO_IN);
	OK(a, DO_FREE, p);
	EQUAL(card(a), CONTEXT);
	EQUAL(TELL(a, DO_USED).c, 0);
}

static void its_owner_may_end(void)
{
	CUdeviceptr q;
	struct word w;

	begin_two();
	q = open_in(b, name(a, alloc(a, 16 * MiB)));
	TELL(b, DO_FILL, q, 16 * MiB, 8);
	killed(a);
	EQUAL(counted(b), CONTEXT + 16 * MiB); /* it counts here now, */
	UNTIL(TELL(b, DO_USED).c == 16 * MiB); /* and as its own when it has looked */
	CHECK(TELL(b, DO_FILLED, q, 16 * MiB, 8).c);
	w = TELL(b, DO_AGENT_OUT);
	CHECK(w.c && strstr(w.text, "has ended")); /* nobody else can say who has it */
	OK(b, DO_CLOSE, q);
	UNTIL(TELL(b, DO_USED).a == CONTEXT && card(b) == CONTEXT);
	OK(b, DO_AGENT_OUT);
	OK(b, DO_IN);
}

/* Nor when who has it is stopped, and cannot look. */
static void what_its_owner_left_counts_before_the_other_looks(void)
{
	struct process c;
	CUdeviceptr q;

	begin_two();
	c = start(check_root);
	q = open_in(b, name(a, alloc(a, 200 * MiB)));
	stopped(b);
	killed(a);
	EQUAL(TELL(c, DO_ALLOC, 250 * MiB).c, CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(counted(c), 2 * CONTEXT + 200 * MiB);
	CHECK(kill(b.pid, SIGCONT) == 0);
	UNTIL(TELL(b, DO_USED).c == 200 * MiB);
	EQUAL(counted(c), 2 * CONTEXT + 200 * MiB);
	OK(b, DO_CLOSE, q);
	UNTIL(counted(c) == 2 * CONTEXT);
	alloc(c, 300 * MiB);
}

/* Its owner goes on as another program under the library, with its pid and its start time. */
static void what_its_owner_had_before_it_became_another_counts(void)
{
	CUdeviceptr q[2];

	begin_two();
	q[0] = open_in(b, name(a, alloc(a, 200 * MiB)));
	begin_order(a, (struct word){DO_EXEC_SELF});
	EQUAL(TELL(a, DO_ALLOC, 250 * MiB).c, CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(counted(a), 2 * CONTEXT + 200 * MiB);
	q[1] = open_in(b, name(a, alloc(a, 100 * MiB)));
	EQUAL(counted(a), 2 * CONTEXT + 300 * MiB); /* this one its owner pays for */
	UNTIL(TELL(b, DO_USED).c == 200 * MiB);
	begin_order(a, (struct word){DO_EXEC_SELF});
	EQUAL(TELL(a, DO_ALLOC, 100 * MiB).c, CUDA_ERROR_OUT_OF_MEMORY);
	UNTIL(TELL(b, DO_USED).c == 300 * MiB);
	CHECK(strstr(TELL(b, DO_STATE).text, "has ended"));
	OK(b, DO_CLOSE, q[0]);
	OK(b, DO_CLOSE, q[1]);
	UNTIL(counted(a) == 2 * CONTEXT);
	alloc(a, 300 * MiB);
}

/* The same by the driver's own handle, where nothing can be swapped. */
static void what_was_given_by_the_driver_counts_after_its_owner(void)
{
	struct process c;
	CUdeviceptr q[2];

	check_limits("", LIMITS_512);
	a = start(check_root);
	b = start(check_root);
	c = start(check_root);
	q[0] = open_in(b, name(a, alloc(a, 100 * MiB)));
	EQUAL(counted(c), 3 * CONTEXT + 100 * MiB);
	begin_order(a, (struct word){DO_EXEC_SELF});
	q[1] = open_in(b, name(a, alloc(a, 100 * MiB)));
	EQUAL(counted(c), 3 * CONTEXT + 200 * MiB);
	stopped(b);
	killed(a);
	EQUAL(TELL(c, DO_ALLOC, 200 * MiB).c, CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(counted(c), 2 * CONTEXT + 200 * MiB);
	CHECK(kill(b.pid, SIGCONT) == 0);
	for (int i = 0; i < 2; i++)
		OK(b, DO_CLOSE, q[i]);
	EQUAL(counted(c), 2 * CONTEXT);
	alloc(c, 300 * MiB);
}

/* One owner that does not answer keeps nobody from seeing that another has ended. */
static void one_owner_that_hangs_hides_no_other(void)
{
	CUdeviceptr q;
	struct process c;

	begin_two();
	c = start(check_root);
	open_in(b, name(c, alloc(c, 100 * MiB)));
	q = open_in(b, name(a, alloc(a, 16 * MiB)));
	stopped(a);
	OK(b, DO_CLOSE, q);
	killed(c);
	UNTIL(TELL(b, DO_USED).c == 100 * MiB);
	CHECK(kill(a.pid, SIGCONT) == 0);
	OK(a, DO_OUT); /* it is told in time that nobody has it, or hears so when it asks */
	EQUAL(card(a), 2 * CONTEXT + 100 * MiB);
}

/* What its owner shared is on the card still, and nobody gets it a second time before it counts where it is. */
static void what_its_owner_left_is_not_given_again(void)
{
	struct process c;

	begin_two();
	c = start(check_root);
	open_in(b, name(a, alloc(a, 200 * MiB)));
	killed(a);
	EQUAL(TELL(c, DO_ALLOC, 250 * MiB).c, CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(counted(c), 2 * CONTEXT + 200 * MiB);
	alloc(c, 150 * MiB);
}

/* What it had on the host went with it; the other goes on without it. */
static void its_owner_may_end_while_it_is_away(void)
{
	CUdeviceptr q;

	begin_two();
	q = open_in(b, name(a, alloc(a, 16 * MiB)));
	alloc(b, 16 * MiB);
	OK(a, DO_OUT);
	OK(b, DO_OUT);
	killed(a);
	OK(b, DO_IN);
	back(b);
	EQUAL(card(b), CONTEXT + 16 * MiB);
	UNTIL(counted(b) == CONTEXT + 16 * MiB);
	OK(b, DO_OUT);
	OK(b, DO_IN);
	OK(b, DO_CLOSE, q);
	EQUAL(counted(b), CONTEXT + 16 * MiB);
}

static void one_that_hangs_is_named_and_nothing_moves(void)
{
	char says[64];
	CUdeviceptr p, q, r;
	struct process c;
	struct word w;

	begin_two();
	c = start(check_root);
	p = alloc(a, 16 * MiB);
	TELL(a, DO_FILL, p, 16 * MiB, 2);
	q = open_in(b, name(a, p));
	r = open_in(c, name(a, p));
	OK(a, DO_QUIET, 1000 * MS);
	stopped(b);
	w = TELL(a, DO_OUT);
	snprintf(says, sizeof says, "process %d, which", (int)b.pid);
	CHECK(w.c && strstr(w.text, says) && strstr(w.text, "does not answer"));
	EQUAL(card(a), 3 * CONTEXT + 16 * MiB);
	CHECK(!TELL(a, DO_HELD).a && TELL(a, DO_FILLED, p, 16 * MiB, 2).c);
	back(c); /* it had left */
	CHECK(TELL(c, DO_FILLED, r, 16 * MiB, 2).c);
	CHECK(kill(b.pid, SIGCONT) == 0); /* it answers late */
	back(b);
	TELL(b, DO_FILL, q, 16 * MiB, 3);
	CHECK(TELL(a, DO_FILLED, p, 16 * MiB, 3).c && TELL(c, DO_FILLED, r, 16 * MiB, 3).c);
	/* its work on the card takes longer than it has */
	OK(a, DO_QUIET, 1000 * MS);
	OK(b, DO_LAUNCH, 4000 * MS);
	w = TELL(a, DO_OUT);
	CHECK(w.c && strstr(w.text, says));
	OK(a, DO_QUIET, 30000 * MS);
	OK(a, DO_OUT); /* when it has ended */
	EQUAL(card(a), 3 * CONTEXT);
	OK(a, DO_IN);
	back(b);
	back(c);
	CHECK(TELL(b, DO_FILLED, q, 16 * MiB, 3).c && TELL(c, DO_FILLED, r, 16 * MiB, 3).c);
}

/* One that has something else that cannot move lets go of nothing. */
static void one_that_cannot_is_named(void)
{
	CUdeviceptr q;
	struct word w;

	begin_two();
	q = open_in(b, name(a, alloc(a, 16 * MiB)));
	TELL(b, DO_FILL, q, 16 * MiB, 2);
	check_limits("", LIMITS_512); /* what is allocated now stays where it is */
	UNTIL(TELL(b, DO_STATE).text[0]);
	alloc(b, 8 * MiB);
	check_limits("swap on\n", LIMITS_512);
	UNTIL(!strstr(TELL(b, DO_STATE).text, "not allowed"));
	UNTIL(!TELL(a, DO_STATE).text[0]);
	w = TELL(a, DO_OUT);
	CHECK(w.c && strstr(w.text, "which shares memory of it: memory from before swapping was allowed"));
	CHECK(TELL(b, DO_FILLED, q, 16 * MiB, 2).c && !TELL(b, DO_HELD).a);
	EQUAL(card(a), 2 * CONTEXT + 24 * MiB);
}

static void a_context_takes_what_was_opened_in_it_along(void)
{
	CUdeviceptr p;

	begin_two();
	p = alloc(a, 16 * MiB);
	open_in(b, name(a, p));
	OK(b, DO_CONTEXT);
	OK(a, DO_FREE, p);
	UNTIL(counted(a) == CONTEXT && card(a) == CONTEXT);
}

static void replaced(struct process p)
{
	struct word none;

	begin_order(p, (struct word){DO_EXEC});
	EQUAL(recv(p.fd, &none, sizeof none, 0), 0);
}

/* Its pid goes on as another program, which has nothing and answers nothing. */
static void one_that_has_it_may_become_another_program(void)
{
	CUdeviceptr p;

	begin_two();
	p = alloc(a, 16 * MiB);
	open_in(b, name(a, p));
	replaced(b);
	OK(a, DO_OUT);
	OK(a, DO_IN);
	OK(a, DO_FREE, p);
	EQUAL(TELL(a, DO_USED).c, 0);
	killed(b);
}

/* The same, and the library is in that one, too: it answers, and has nothing of it. */
static void one_that_has_it_may_become_another_user_of_the_library(void)
{
	CUdeviceptr p, q;

	begin_two();
	p = alloc(a, 16 * MiB);
	open_in(b, name(a, p));
	alloc(b, 64 * MiB);
	begin_order(b, (struct word){DO_EXEC_SELF});
	q = alloc(b, 2 * MiB);
	EQUAL(counted(b), 2 * CONTEXT + 18 * MiB); /* what it had before is no more */
	name(b, q); /* it can be asked */
	OK(a, DO_OUT);
	OK(a, DO_IN);
	OK(a, DO_FREE, p);
	EQUAL(TELL(a, DO_USED).c, 0);
	EQUAL(card(a), 2 * CONTEXT + 2 * MiB);
}

/* It cannot be asked, and has the memory still. One more may find the thread that waits for it at the old socket. */
static void one_that_closed_its_descriptors_is_named_and_nothing_moves(void)
{
	struct word w = {0};
	CUdeviceptr p, q;

	begin_two();
	p = alloc(a, 16 * MiB);
	q = open_in(b, name(a, p));
	TELL(b, DO_CLOSE_SOCKETS);
	for (int i = 0; i < 3 && !w.c; i++) {
		w = TELL(a, DO_OUT);
		OK(a, DO_IN);
		back(b);
	}
	CHECK(w.c && strstr(w.text, "has closed the socket"));
	TELL(a, DO_FILL, p, 16 * MiB, 3);
	CHECK(TELL(b, DO_FILLED, q, 16 * MiB, 3).c); /* the same memory still */
	killed(b);
	OK(a, DO_OUT);
	EQUAL(card(a), CONTEXT);
}

/* The same of its owner, which has it: nothing is lost, and the other waits. */
static void what_its_owner_cannot_be_asked_for_is_not_lost(void)
{
	struct word w = {0};
	CUdeviceptr q;

	begin_two();
	q = open_in(b, name(a, alloc(a, 16 * MiB)));
	TELL(b, DO_FILL, q, 16 * MiB, 3);
	TELL(a, DO_CLOSE_SOCKETS);
	for (int i = 0; i < 3 && !w.b; i++) {
		OK(a, DO_OUT);
		OK(a, DO_IN); /* the others have a second */
		w = TELL(b, DO_STATE);
	}
	CHECK(w.b);
	killed(a);
	back(b); /* now it is */
	OK(b, DO_CLOSE, q);
	EQUAL(counted(b), CONTEXT);
}

static void its_owner_may_become_another_program(void)
{
	CUdeviceptr p, q;

	begin_two();
	p = open_in(b, name(a, alloc(a, 16 * MiB)));
	q = open_in(b, name(a, alloc(a, 16 * MiB)));
	OK(a, DO_OUT);
	replaced(a);
	back(b); /* what was on the host is lost */
	OK(b, DO_CLOSE, p);
	OK(b, DO_CLOSE, q);
	OK(b, DO_OUT);
	OK(b, DO_IN);
	killed(a);
}

static void a_forked_child_has_nothing_of_it(void)
{
	CUdeviceptr p, q;

	begin_two();
	p = alloc(a, 16 * MiB);
	q = open_in(b, name(a, p));
	TELL(a, DO_FORK);
	TELL(b, DO_FORK);
	OK(a, DO_OUT);
	OK(a, DO_IN);
	back(b);
	OK(b, DO_CLOSE, q);
	OK(a, DO_FREE, p);
	EQUAL(card(a), 2 * CONTEXT);
}

/* As the agent makes them. */
static void open_to_all(const char *path)
{
	char full[600];

	snprintf(full, sizeof full, "%s%s", check_root, path);
	CHECK(chmod(full, 0777) == 0);
}

/* The programs' masks are the usual ones, and who comes first makes what all use. */
static void users_of_a_container_share_memory(void)
{
	CUdeviceptr p, q;
	int card_file;

	if (getuid())
		return; /* it takes root to be two users */
	check_limits("swap on\n", LIMITS_512);
	open_to_all("/run/elastic-gpu");
	open_to_all("/run/elastic-gpu-requests/GPU-11111111-1111-1111-1111-111111111120");
	card_file = open(getenv("STUB_CARD"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	CHECK(card_file >= 0 && fchmod(card_file, 0666) == 0 && close(card_file) == 0);
	umask(022);
	a = start_as(check_root, 1000);
	p = alloc(a, 16 * MiB);
	TELL(a, DO_FILL, p, 16 * MiB, 2);
	b = start_as(check_root, 1001);
	q = open_in(b, name(a, p));
	EQUAL(counted(b), 2 * CONTEXT + 16 * MiB);
	for (int round = 0; round < 2; round++) {
		OK(round ? b : a, DO_OUT);
		OK(round ? a : b, DO_OUT);
		EQUAL(card(a), 2 * CONTEXT);
		CHECK(says(a, "in", "\"ok\":true") && says(b, "in", "\"ok\":true"));
		back(b);
		CHECK(TELL(b, DO_FILLED, q, 16 * MiB, 2).c);
	}
	OK(b, DO_CLOSE, q);
	OK(a, DO_FREE, p);
	EQUAL(card(a), 2 * CONTEXT);
}

/* Another user of the container puts links where the first program of root makes what all use. */
static void no_link_is_followed(void)
{
	static const char *const names[] = {"control", "peers"};
	char victim[300], path[400];
	struct stat is;

	snprintf(victim, sizeof victim, "%s/victim", check_root);
	CHECK(mkdir(victim, 0755) == 0 && chmod(victim, 0755) == 0);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/run/elastic-gpu/%s", check_root, names[i]);
		CHECK(symlink(victim, path) == 0);
	}
	check_limits("swap on\n", LIMITS_512);
	a = start(check_root);
	EQUAL(TELL(a, DO_NAME, alloc(a, 4 * MiB)).c, CUDA_ERROR_NOT_SUPPORTED); /* it says so, and has its memory */
	stop(a);
	CHECK(stat(victim, &is) == 0);
	EQUAL(is.st_mode & 07777, 0755);
	CHECK(rmdir(victim) == 0); /* nothing was put there */
}

/* The same, between one step and the next. */
static void a_folder_that_is_replaced_is_not_looked_up_again(void)
{
	char was[300], path[300], name[400];
	struct stat is;
	int folder, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(path, sizeof path, "%s/folder", check_root);
	snprintf(was, sizeof was, "%s/was", check_root);
	umask(077);
	folder = shared_folder(path);
	CHECK(fd >= 0 && folder >= 0 && stat(path, &is) == 0);
	EQUAL(is.st_mode & 07777, 0777);
	CHECK(rename(path, was) == 0 && symlink("/", path) == 0);
	CHECK(shared_socket(fd, folder, "name", true));
	snprintf(name, sizeof name, "%s/name", was);
	CHECK(lstat(name, &is) == 0 && S_ISSOCK(is.st_mode));
	EQUAL(is.st_mode & 07777, 0666);
	CHECK(shared_folder(path) < 0);
}

/* ---- forged ---- */

static int connect_to(pid_t pid)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(to.sun_path, sizeof to.sun_path, "%s/run/elastic-gpu/peers/%d", check_root, (int)pid);
	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	return fd;
}

/* Everything another process of the container can say to one, also with descriptors that nobody asked for. */
static void what_is_said_to_a_process_cannot_break_it(void)
{
	union { struct peer_request q; char bytes[400]; } said;
	struct shared_name n;
	struct peer_answer answer;
	uint64_t x = 88172645463325252;
	CUdeviceptr p, q;
	unsigned files;
	int fd, memory;

	begin_two();
	p = alloc(a, 16 * MiB);
	q = open_in(b, name(a, p));
	TELL(a, DO_FILL, p, 16 * MiB, 2);
	shared_is_name(&(CUipcMemHandle[]){name(a, p)}[0], &n);
	files = (unsigned)TELL(a, DO_FILES).a;
	for (int i = 0; i < 400; i++) {
		for (size_t k = 0; k + 8 <= sizeof said; k += 8) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			memcpy(said.bytes + k, &x, 8);
		}
		if (i % 4)
			said.q = (struct peer_request){i % 5 ? PEER_VERSION : 7, (uint32_t)x % 6, x >> 8 & 1 ? n.id : x, x >> 9 & 1 ? n.secret : x >> 10, (uint32_t)(x >> 11) % 3 ? 0 : (uint32_t)(x >> 20), (uint32_t)x};
		fd = connect_to(i % 2 ? a.pid : b.pid);
		CHECK(send(fd, said.bytes, i % 7 ? sizeof said.q : x % sizeof said.bytes, MSG_NOSIGNAL) >= 0);
		if (i % 3 && peer_answered(fd, &answer, &memory, now_ns() + 20 * MS) && memory >= 0)
			close(memory);
		close(fd); /* or hangs up */
	}
	said.q = (struct peer_request){.version = PEER_VERSION, .ask = PEER_DROP, .id = n.id, .secret = n.secret};
	CHECK(peer_reply(fd = connect_to(a.pid), (struct peer_answer *)(void *)&said, 1)); /* too long, with a descriptor */
	close(fd);
	fd = connect_to(a.pid);
	close(fd);
	UNTIL(TELL(a, DO_FILES).a == files);
	OK(a, DO_OUT);
	EQUAL(card(a), 2 * CONTEXT);
	OK(a, DO_IN);
	back(b);
	CHECK(TELL(b, DO_FILLED, q, 16 * MiB, 2).c);
}

/* The next thing that a process says here. */
static int asked(int listener, pid_t by, enum peer_asks ask)
{
	struct peer_request q;
	pid_t from;
	int fd = peer_accept(listener, &q, &from);

	CHECK(fd >= 0 && from == by && q.id == 1 && q.ask == ask);
	return fd;
}

static void answer(int listener, enum peer_says says, int memory)
{
	struct peer_answer with = {.says = says, .size = 4 * MiB, .chunk_size = 2 * MiB};
	int fd = asked(listener, b.pid, PEER_GIVE);

	CHECK(peer_reply(fd, &with, memory));
	close(fd);
}

static void leave_of(struct process p, uint64_t secret, enum peer_says want)
{
	struct peer_request q = {.version = PEER_VERSION, .ask = PEER_LEAVE, .secret = secret};
	struct peer_answer says;
	int fd = connect_to(p.pid), memory;

	CHECK(send(fd, &q, sizeof q, MSG_NOSIGNAL) == (ssize_t)sizeof q && peer_answered(fd, &says, &memory, now_ns() + 60000 * MS));
	EQUAL(says.says, want);
	close(fd);
}

/* This test is the owner of two chunks. It takes them back when the other has only the first of them again. */
static void what_is_there_in_part_leaves_again(void)
{
	struct shared_name n = {.magic = SHARED_MAGIC, .id = 1, .secret = 1, .pid = (uint32_t)getpid(), .size = 4 * MiB};
	struct word w = {.order = DO_OPEN};
	CUmemHandle own[2];
	int listener, memory[2];
	uint64_t before;

	begin_two();
	name(b, alloc(b, 2 * MiB)); /* it can be asked */
	EQUAL(cuInit(0), 0);
	EQUAL(cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	before = card(b);
	for (int i = 0; i < 2; i++) {
		EQUAL(real_cuMemCreate(&own[i], 2 * MiB, &to_share, 0), 0);
		EQUAL(real_cuMemExportToShareableHandle(&memory[i], own[i], CU_MEM_HANDLE_POSIX_FD, 0), 0);
	}
	listener = peer_listen();
	memcpy(&w.h, &n, sizeof n);
	begin_order(b, w);
	answer(listener, PEER_DONE, memory[0]);
	answer(listener, PEER_DONE, memory[1]);
	EQUAL(end_order(b).c, 0);
	leave_of(b, 2, PEER_UNKNOWN); /* of one before us that had our pid */
	CHECK(!TELL(b, DO_STATE).b);
	leave_of(b, 1, PEER_DONE);
	CHECK(TELL(b, DO_STATE).b);
	answer(listener, PEER_DONE, memory[0]);
	answer(listener, PEER_LATER, -1);
	leave_of(b, 1, PEER_DONE);
	for (int i = 0; i < 2; i++)
		EQUAL(real_cuMemRelease(own[i]), 0);
	EQUAL(card(b), before);
	peer_unlisten();
}

/* The answers of one that is not the library: this test stands at the socket of a process that gives nothing. */
static void what_a_process_answers_cannot_break_the_asker(void)
{
	struct shared_name n = {.magic = SHARED_MAGIC, .id = 1, .secret = 1, .pid = (uint32_t)getpid(), .size = MiB};
	struct peer_answer answers[] = {
		{.says = PEER_DONE, .size = 2 * MiB, .chunk_size = 2 * MiB}, {.says = PEER_DONE}, {.says = PEER_DONE, .size = UINT64_MAX, .chunk_size = 1},
		{.says = PEER_DONE, .size = UINT64_MAX, .chunk_size = UINT64_MAX}, {.says = PEER_DONE, .device = -1, .size = MiB, .chunk_size = MiB}, {.says = 77},
		{.says = PEER_DONE, .device = INT32_MAX, .size = MiB, .chunk_size = MiB}, {.says = PEER_REFUSED}, {.says = PEER_UNKNOWN},
	};
	int listener, fd, given = memfd_create("no memory of a card", MFD_CLOEXEC);
	struct word w = {.order = DO_OPEN};
	unsigned files;

	begin_two();
	alloc(b, MiB);
	name(b, alloc(b, 2 * MiB));
	files = (unsigned)TELL(b, DO_FILES).a;
	listener = peer_listen();
	CHECK(listener >= 0 && given >= 0);
	memset(answers[7].why, 'x', sizeof answers[7].why);
	memcpy(&w.h, &n, sizeof n);
	for (unsigned i = 0; i < sizeof answers / sizeof *answers; i++) {
		begin_order(b, w);
		fd = asked(listener, b.pid, PEER_GIVE);
		CHECK(peer_reply(fd, &answers[i], i % 2 ? -1 : given));
		close(fd);
		if (answers[i].says == PEER_DONE || answers[i].says == PEER_REFUSED)
			close(asked(listener, b.pid, PEER_DROP)); /* it has not taken what it may be written down for */
		CHECK(end_order(b).c);
	}
	begin_order(b, w); /* cut short */
	fd = asked(listener, b.pid, PEER_GIVE);
	CHECK(send(fd, answers, 9, MSG_NOSIGNAL) == 9);
	close(fd);
	CHECK(end_order(b).c);
	EQUAL(TELL(b, DO_FILES).a, files);
	OK(b, DO_OUT);
	OK(b, DO_IN);
	EQUAL(card(b), CONTEXT * 2 + 4 * MiB);
	peer_unlisten();
}

MAIN(T(one_that_has_it_may_end), T(its_owner_may_end), T(what_its_owner_left_is_not_given_again), T(what_its_owner_left_counts_before_the_other_looks),
	T(what_its_owner_had_before_it_became_another_counts), T(what_was_given_by_the_driver_counts_after_its_owner), T(one_owner_that_hangs_hides_no_other), T(its_owner_may_end_while_it_is_away),
	T(one_that_hangs_is_named_and_nothing_moves), T(one_that_cannot_is_named), T(a_context_takes_what_was_opened_in_it_along),
	T(a_forked_child_has_nothing_of_it), T(users_of_a_container_share_memory), T(no_link_is_followed), T(a_folder_that_is_replaced_is_not_looked_up_again), T(what_is_said_to_a_process_cannot_break_it),
	T(what_a_process_answers_cannot_break_the_asker), T(what_is_there_in_part_leaves_again),
	T(one_that_closed_its_descriptors_is_named_and_nothing_moves), T(what_its_owner_cannot_be_asked_for_is_not_lost),
	T(one_that_has_it_may_become_another_program), T(one_that_has_it_may_become_another_user_of_the_library), T(its_owner_may_become_another_program))
