/* libnvidia-ml.so.1 of a node without cards: what NVIDIA's device plugin and GPU Feature Discovery ask of NVML.
 *
 * Compiled against nvml.h of the Go module github.com/NVIDIA/go-nvml, which the plugin is built with. Settings:
 * CARDS (2 unless set), CARD_NAME, CARD_MIB, and CARD_XID, a file: its text "INDEX XID" is reported once as a critical
 * error, and the file is removed. tests/support/card is another, with memory that processes take.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"

#define MOST 16
struct nvmlDevice_st {
    unsigned int index;
};
static struct nvmlDevice_st cards[MOST];

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static unsigned int count(void) {
    unsigned int n = (unsigned int)atoi(setting("CARDS", "2"));
    return n > MOST ? MOST : n;
}

static nvmlReturn_t text(char *to, unsigned int length, const char *from) {
    if (strlen(from) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, from);
    return NVML_SUCCESS;
}

static void uuid_of(unsigned int index, char *to, size_t length) {
    snprintf(to, length, "GPU-51ce0000-0000-4000-8000-%012x", index);
}

nvmlReturn_t nvmlInit_v2(void) { return NVML_SUCCESS; }
nvmlReturn_t nvmlInit(void) { return NVML_SUCCESS; }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { (void)flags; return NVML_SUCCESS; }
nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }

const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    default: return "not supported by the test card";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) { return text(version, length, "580.65.06"); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) { return text(version, length, "13.580.65.06"); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return NVML_SUCCESS; }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n) { *n = count(); return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (index >= count()) return NVML_ERROR_INVALID_ARGUMENT;
    cards[index].index = index;
    device->handle = &cards[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    char its[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    for (unsigned int index = 0; index < count(); index++) {
        uuid_of(index, its, sizeof its);
        if (!strcmp(its, uuid)) return nvmlDeviceGetHandleByIndex_v2(index, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    (void)device;
    return text(name, length, setting("CARD_NAME", "NVIDIA A100-SXM4-40GB"));
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    uuid_of(device.handle->index, uuid, length);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) { *index = device.handle->index; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) { *minor = device.handle->index; return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand) {
    (void)device;
    *brand = NVML_BRAND_NVIDIA;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch) {
    (void)device;
    *arch = NVML_DEVICE_ARCH_AMPERE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    (void)device;
    *major = 8, *minor = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    (void)device;
    memory->total = strtoull(setting("CARD_MIB", "40960"), NULL, 10) << 20;
    memory->used = 0, memory->free = memory->total;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    memset(pci, 0, sizeof *pci);
    pci->bus = device.handle->index + 1, pci->pciDeviceId = 0x20b010de;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT, 0, pci->bus, 0);
    snprintf(pci->busId, sizeof pci->busId, NVML_DEVICE_PCI_BUS_ID_FMT, 0, pci->bus, 0);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    (void)device, (void)current, (void)pending;
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *n) { (void)device; *n = 0; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) { (void)device; *is = 0; return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    (void)device, (void)info;
    return NVML_ERROR_NOT_SUPPORTED;
}

/* A card's links to others, for the aligned allocation of cards that are not shared. */
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level) {
    (void)one, (void)other;
    *level = NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
    (void)device, (void)link, (void)active;
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    (void)device;
    *types = nvmlEventTypeXidCriticalError;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) { set->handle = (struct nvmlEventSet_st *)cards; return NVML_SUCCESS; }
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) { (void)set; return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    (void)device, (void)types, (void)set;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int milliseconds) {
    (void)set;
    const char *file = setting("CARD_XID", "");
    for (unsigned int waited = 0; waited < milliseconds; waited += 100) {
        unsigned int index, xid;
        FILE *open = *file ? fopen(file, "r") : NULL;
        int read = open ? fscanf(open, "%u %u", &index, &xid) : 0;
        if (open) fclose(open);
        if (read == 2 && index < count()) {
            unlink(file);
            memset(data, 0, sizeof *data);
            nvmlDeviceGetHandleByIndex_v2(index, &data->device);
            data->eventType = nvmlEventTypeXidCriticalError, data->eventData = xid;
            data->gpuInstanceId = data->computeInstanceId = 0xFFFFFFFF;
            return NVML_SUCCESS;
        }
        usleep(100 * 1000);
    }
    return NVML_ERROR_TIMEOUT;
}
