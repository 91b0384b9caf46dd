/* Where the agent mounts things in a container. */
#include <stdio.h>
#include <stdlib.h>
#include "paths.h"

/* Paths are fixed: nothing inside the container chooses another. Tests build a variant that reads a root. */
#ifdef ELASTICGPU_TESTING
static const char *rooted(const char *path, char *buffer, size_t size)
{
	const char *root = getenv("ELASTICGPU_ROOT");
	snprintf(buffer, size, "%s%s", root ? root : "", path);
	return buffer;
}
#define PATH(name, value) const char *name(void) { static __thread char b[256]; return rooted(value, b, sizeof b); }
#else
#define PATH(name, value) const char *name(void) { return value; }
#endif
PATH(path_limits, "/etc/elastic-gpu/limits")
PATH(path_container, "/run/elastic-gpu/region")
PATH(path_control, "/run/elastic-gpu/control")
PATH(path_peers, "/run/elastic-gpu/peers")
PATH(path_turns, "/etc/elastic-gpu/turns")
PATH(path_requests, "/run/elastic-gpu-requests")
PATH(path_mps, "/run/nvidia-mps")
PATH(path_pool, "/run/elastic-gpu/pool")
