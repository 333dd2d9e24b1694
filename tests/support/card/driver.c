/* The CUDA driver, as far as frameworks need it to manage memory. */
#define _GNU_SOURCE
#include "card.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, NOT_FOUND = 500, NOT_SUPPORTED = 801 };

static char thing; /* what stands for a context, a stream, an event, a module */

int card_attribute(int which) {
    switch (which) {
    case 1: return 1024;                            /* threads per block */
    case 2: case 3: return 1024;                    /* block x, y */
    case 4: return 64;                              /* block z */
    case 5: return 2147483647;                      /* grid x */
    case 6: case 7: return 65535;                   /* grid y, z */
    case 8: case 81: case 97: return 65536;         /* shared memory: block, multiprocessor, opt-in */
    case 10: return 32;                             /* warp */
    case 12: case 82: return 65536;                 /* registers: block, multiprocessor */
    case 13: return 1590000;                        /* clock, kHz */
    case 16: return 40;                             /* multiprocessors */
    case 36: return 5001000;                        /* memory clock, kHz */
    case 37: return 256;                            /* memory bus, bits */
    case 38: return 4 << 20;                        /* L2 cache */
    case 39: return 1024;                           /* threads per multiprocessor */
    case 41: case 102: case 115: return 1;          /* unified addressing, virtual memory, memory pools */
    case 75: return 7;                              /* compute capability 7.5, a T4's */
    case 76: return 5;
    case 106: return 16;                            /* blocks per multiprocessor */
    default: return 0;
    }
}

static void *self;

__attribute__((constructor)) static void find_self(void) {
    Dl_info info;
    if (dladdr(&self, &info)) self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

/* Functions are asked for by the name without the version that they carry in the library. */
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    char versioned[128];
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    *function = dlsym(self, versioned);
    if (!*function) *function = dlsym(self, name);
    if (status) *status = !*function;
    return *function ? 0 : NOT_FOUND;
}

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

int cuInit(unsigned flags) {
    (void)flags;
    return card_total() ? 0 : NO_DEVICE;
}

int cuDriverGetVersion(int *version) {
    *version = CARD_CUDA;
    return 0;
}

int cuDeviceGetCount(int *count) {
    *count = card_total() != 0;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

int cuDeviceGetAttribute(int *value, int which, int device) {
    (void)device;
    *value = card_attribute(which);
    return 0;
}

int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    snprintf(name, length, "%s", own_card()->name);
    return 0;
}

int cuDeviceGetPCIBusId(char *bus, int length, int device) {
    (void)device;
    snprintf(bus, length, "%s", CARD_BUS);
    return 0;
}

int cuDeviceGetUuid_v2(char uuid[16], int device) {
    (void)device;
    memset(uuid, 1, 16);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = card_total();
    return 0;
}

/* Contexts: there is one, and it is current everywhere. */

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = 1;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    if (own_card() && own_card()->context) usleep((useconds_t)own_card()->context);
    *context = &thing;
    return 0;
}

int cuCtxGetCurrent(void **context) {
    *context = &thing;
    return 0;
}

int cuCtxPopCurrent_v2(void **context) {
    return cuCtxGetCurrent(context);
}

int cuCtxGetDevice(int *device) {
    *device = 0;
    return 0;
}

int cuCtxGetApiVersion(void *context, unsigned *version) {
    (void)context;
    *version = CARD_CUDA;
    return 0;
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    *least = *greatest = 0;
    return 0;
}

NOTHING(cuCtxSetCurrent)
NOTHING(cuCtxPushCurrent_v2)
NOTHING(cuCtxEnablePeerAccess)
NOTHING(cuDevicePrimaryCtxRelease_v2)
NOTHING(cuDevicePrimaryCtxSetFlags_v2)

/* Memory */

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    *free = card_free();
    *total = card_total();
    return 0;
}

int cuMemAlloc_v2(uintptr_t *address, size_t bytes) {
    *address = card_take(bytes);
    return *address ? 0 : bytes ? OUT_OF_MEMORY : INVALID;
}

int cuMemFree_v2(uintptr_t address) {
    card_drop(address);
    return 0;
}

int cuMemAllocAsync(uintptr_t *address, size_t bytes, void *stream) {
    (void)stream;
    return cuMemAlloc_v2(address, bytes);
}

int cuMemAllocFromPoolAsync(uintptr_t *address, size_t bytes, void *pool, void *stream) {
    (void)pool, (void)stream;
    return cuMemAlloc_v2(address, bytes);
}

int cuMemFreeAsync(uintptr_t address, void *stream) {
    (void)stream;
    return cuMemFree_v2(address);
}

/* Memory of both the host and the card; here all of it lies on the card. */
int cuMemAllocManaged(uintptr_t *address, size_t bytes, unsigned flags) {
    (void)flags;
    return cuMemAlloc_v2(address, bytes);
}

int cuMemGetAddressRange_v2(uintptr_t *start, size_t *bytes, uintptr_t address) {
    return card_find(address, start, bytes) ? 0 : INVALID;
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    (void)flags;
    return (*address = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095)) ? 0 : OUT_OF_MEMORY;
}

int cuMemFreeHost(void *address) {
    free(address);
    return 0;
}

int cuDeviceGetDefaultMemPool(void **pool, int device) {
    (void)device;
    *pool = &thing;
    return 0;
}

int cuMemPoolCreate(void **pool, const void *properties) {
    (void)properties;
    *pool = &thing;
    return 0;
}

int cuMemPoolGetAttribute(void *pool, int which, uint64_t *value) {
    (void)pool, (void)which;
    *value = 0;
    return 0;
}

NOTHING(cuMemPoolSetAttribute)
NOTHING(cuMemPoolSetAccess)
NOTHING(cuMemPoolTrimTo)
NOTHING(cuMemPoolDestroy)
NOTHING(cuMemHostRegister_v2)
NOTHING(cuMemHostUnregister)
COPY(cuMemcpyHtoD_v2)
COPY(cuMemcpyHtoDAsync_v2)
COPY(cuMemcpyDtoH_v2)
COPY(cuMemcpyDtoHAsync_v2)
COPY(cuMemcpyDtoD_v2)
COPY(cuMemcpyDtoDAsync_v2)
COPY(cuMemsetD8_v2)
COPY(cuMemsetD8Async)
COPY(cuMemsetD32_v2)
COPY(cuMemsetD32Async)

/* Memory and addresses apart: a handle is memory, and is held by whoever created it and by each place it is mapped at. */

static struct {
    uintptr_t at, handle;
} maps[4096];

int cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option) {
    (void)properties, (void)option;
    *bytes = 2 << 20;
    return 0;
}

int cuMemCreate(uintptr_t *handle, size_t bytes, const void *properties, uint64_t flags) {
    (void)properties, (void)flags;
    return cuMemAlloc_v2(handle, bytes);
}

int cuMemRelease(uintptr_t handle) {
    return cuMemFree_v2(handle);
}

int cuMemAddressReserve(uintptr_t *address, size_t bytes, size_t alignment, uintptr_t wanted, uint64_t flags) {
    (void)alignment, (void)wanted, (void)flags;
    *address = card_reserve(bytes);
    return 0;
}

int cuMemMap(uintptr_t address, size_t bytes, size_t offset, uintptr_t handle, uint64_t flags) {
    (void)bytes, (void)offset, (void)flags;
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (!maps[i].at) {
            maps[i].at = address;
            maps[i].handle = handle;
            card_hold(handle);
            return 0;
        }
    return OUT_OF_MEMORY;
}

int cuMemUnmap(uintptr_t address, size_t bytes) {
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (maps[i].at && maps[i].at >= address && maps[i].at < address + bytes) {
            maps[i].at = 0;
            card_drop(maps[i].handle);
        }
    return 0;
}

NOTHING(cuMemAddressFree)
NOTHING(cuMemSetAccess)

/* Work: any kernel takes a microsecond for each thousand rounds, which are its first argument, where a clock runs; otherwise
   none. A copy takes none, but NVML counts it. */

int cuModuleLoadData(void **module, const void *image) {
    (void)image; /* compiled here, for the first kernel */
    if (own_card() && own_card()->compile) usleep((useconds_t)own_card()->compile);
    *module = &thing;
    return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module, (void)name;
    *function = &thing;
    return 0;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y, unsigned block_z,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    (void)function, (void)x, (void)y, (void)z, (void)block_x, (void)block_y, (void)block_z, (void)shared, (void)stream, (void)extra;
    return card_work(arguments ? *(uint64_t *)arguments[0] / 1000 : 0);
}

int cuCtxSynchronize(void) {
    card_wait();
    return 0;
}

int cuStreamSynchronize(void *stream) {
    (void)stream;
    return cuCtxSynchronize();
}

int cuEventSynchronize(void *event) {
    (void)event;
    return cuCtxSynchronize();
}

/* Streams and events: there is one stream. */

int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    *stream = &thing;
    return 0;
}

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    (void)priority;
    return cuStreamCreate(stream, flags);
}

int cuStreamGetCtx(void *stream, void **context) {
    (void)stream;
    return cuCtxGetCurrent(context);
}

int cuStreamIsCapturing(void *stream, int *status) {
    (void)stream;
    *status = 0;
    return 0;
}

int cuStreamGetPriority(void *stream, int *priority) {
    (void)stream;
    *priority = 0;
    return 0;
}

int cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    *event = &thing;
    return 0;
}

int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    (void)start, (void)end;
    *milliseconds = 0;
    return 0;
}

int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    (void)stream;
    function(data);
    return 0;
}

NOTHING(cuStreamDestroy_v2)
NOTHING(cuStreamQuery)
NOTHING(cuStreamWaitEvent)
NOTHING(cuEventDestroy_v2)
NOTHING(cuEventQuery)
NOTHING(cuEventRecord)

int cuGetErrorName(int error, const char **text) {
    *text = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_NOT_SUPPORTED";
    return 0;
}

int cuGetErrorString(int error, const char **text) {
    *text = error == OUT_OF_MEMORY ? "out of memory" : "not supported by the test card";
    return 0;
}

/* Frameworks refuse to start unless these are there, and this card has them not. */
UNSUPPORTED(cuMemExportToShareableHandle, NOT_SUPPORTED)
UNSUPPORTED(cuMemImportFromShareableHandle, NOT_SUPPORTED)
UNSUPPORTED(cuMemGetAllocationPropertiesFromHandle, NOT_SUPPORTED)
UNSUPPORTED(cuMemRetainAllocationHandle, NOT_SUPPORTED)
UNSUPPORTED(cuMulticastAddDevice, NOT_SUPPORTED)
UNSUPPORTED(cuMulticastBindMem, NOT_SUPPORTED)
UNSUPPORTED(cuMulticastCreate, NOT_SUPPORTED)
UNSUPPORTED(cuMulticastUnbind, NOT_SUPPORTED)
UNSUPPORTED(cuStreamWriteValue32, NOT_SUPPORTED)
