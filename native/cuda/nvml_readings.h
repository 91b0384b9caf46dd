/* What NVML says about this process and its cards. */
#ifndef ELASTIC_NVML_READINGS_H
#define ELASTIC_NVML_READINGS_H

#include <stdbool.h>
#include <stdint.h>

struct device;
/* Bytes the driver says this process uses on a card. */
bool nvml_process_bytes(struct device *d, uint64_t *bytes);
/* Inside a pid namespace only the agent can say under which pid NVML knows us. */
void nvml_set_host_pid(unsigned pid);

#endif
