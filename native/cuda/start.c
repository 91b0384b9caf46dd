/* Puts the parts together when the first CUDA call comes: the lower ones call these, and know nothing above them. */
#include "compute_limit.h"
#include "control_socket.h"
#include "graph_memory.h"
#include "hold.h"
#include "memory_budget.h"
#include "memory_calls.h"
#include "peer_service.h"
#include "pool_memory.h"
#include "pools.h"
#include "start.h"
#include "swap.h"

static void free_unused(struct device *d)
{
	pools_trim(d);
	if (!swap_is_out() && !swap_is_busy()) /* some calls that need memory do not wait for a swap */
		graph_memory_settle();
	pooled_trim_all(true);
}

static void forked(void)
{
	memory_calls_fork_child();
	compute_limit_fork_child();
	swap_fork_child();
	hold_fork_child();
	pooled_fork_child();
	graph_memory_fork_child();
	control_fork_child();
	peer_service_fork_child();
}

static const struct session_parts parts = {
	.started = control_start,
	.limits_changed = compute_limit_reload,
	.forked = forked,
};

bool library_register_and_start(void)
{
	memory_on_full(free_unused);
	return session_start(&parts);
}
