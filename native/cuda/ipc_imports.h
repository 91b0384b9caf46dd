/* Memory of other processes that this one has opened. */
#ifndef ELASTIC_IPC_IMPORTS_H
#define ELASTIC_IPC_IMPORTS_H

#include <stdint.h>
#include "driver_types.h"
#include "session.h"

void ipc_exported(const CUipcMemHandle *handle);
/* Memory of another process: charged here, unless a living process of this container pays for it already. */
CUresult ipc_import(struct device *d, CUdeviceptr ptr, const CUipcMemHandle *handle);
/* Charges the imports whose exporter has died. */
void ipc_imports_refresh(void);

#endif
