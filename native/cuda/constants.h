/* Numbers that every part uses. */
#ifndef ELASTIC_CONSTANTS_H
#define ELASTIC_CONSTANTS_H

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define PROTOCOL 1       /* of the limits file, the shared files and the control socket */
#define MAX_DEVICES 16
#define MiB ((uint64_t)1 << 20)
#define GiB ((uint64_t)1 << 30)
#define MS ((int64_t)1000000)
#define ROUND_UP(n, to) (((n) + (to) - 1) / (to) * (to))

#endif
