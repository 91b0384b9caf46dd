/* libnvidia-ml.so.1 of programs whose card is elsewhere. */
#ifndef ELASTIC_REMOTE_NVML_H
#define ELASTIC_REMOTE_NVML_H

#include <stdint.h>
#include "bytes.h"
#include "constants.h"
#include "driver_types.h"
#include "nvml_exports.h"
#include "remote_calls.h"

EXPORT const char *nvmlErrorString(nvmlReturn r);

/* Asks the server. What comes back begins with what NVML says there, which this returns, or why there is no answer. */
nvmlReturn nvml_ask(unsigned call, const void *args, size_t size, void *back, size_t expect);
/* The number by which the server knows a card: below 0 for none. */
int32_t nvml_number(nvmlDevice dev);
nvmlReturn nvml_text(char *back, char *text, unsigned size);

#endif
