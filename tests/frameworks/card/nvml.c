/* NVIDIA's management library, as far as frameworks and bench/gpu ask it. */
#include "card.h"

#include <stdio.h>

static char thing; /* what stands for the device */

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = card_total() != 0;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    (void)index;
    *device = &thing;
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
    (void)bus;
    *device = &thing;
    return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
    snprintf(name, length, "%s", CARD_NAME);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, uint64_t memory[3]) {
    (void)device;
    memory[0] = card_total();
    memory[1] = card_free();
    memory[2] = memory[0] - memory[1];
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *processes) {
    (void)device, (void)processes;
    *count = 0;
    return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "0.0");
    return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = CARD_DRIVER;
    return 0;
}

const char *nvmlErrorString(int error) {
    return error ? "not supported by the test card" : "success";
}

NOTHING(nvmlInit_v2)
NOTHING(nvmlShutdown)

#define NOT_SUPPORTED 3
UNSUPPORTED(nvmlDeviceGetGpuFabricInfoV, NOT_SUPPORTED)
UNSUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType, NOT_SUPPORTED)
UNSUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2, NOT_SUPPORTED)
