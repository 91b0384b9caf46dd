/* This process as a client of NVIDIA's MPS, where a card is shared in space. */
#ifndef ELASTIC_MPS_H
#define ELASTIC_MPS_H

#include <stdbool.h>
#include "driver_types.h"
#include "limits_file.h"

/* Has the driver find the daemon, with the share that was granted. Before cuInit, which reads it once. */
void mps_before_init(const struct limits *l);
/* Whether what this process does on the card goes through MPS. */
bool mps_client(CUdevice dev);

#endif
