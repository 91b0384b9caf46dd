/* Where the agent mounts things in a container. */
#ifndef ELASTIC_PATHS_H
#define ELASTIC_PATHS_H

const char *path_limits(void);
const char *path_container(void);
const char *path_control(void);
const char *path_peers(void);
const char *path_turns(void);
const char *path_requests(void);
const char *path_mps(void);
const char *path_pool(void);

#endif
