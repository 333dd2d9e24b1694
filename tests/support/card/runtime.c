/* The CUDA runtime, as far as PyTorch needs it to manage memory. Errors: 0 success, 2 out of memory, 801 not supported. */
#define _GNU_SOURCE
#include "card.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_OF_MEMORY = 2, NO_DEVICE = 100, NOT_SUPPORTED = 801 };

static _Thread_local int last;
static char thing; /* what stands for a stream, an event, a pool, a binary */

static int failed(int error) {
    return last = error;
}

int cudaGetDeviceCount(int *count) {
    *count = card_total() != 0;
    return *count ? 0 : failed(NO_DEVICE);
}

int cudaGetDevice(int *device) {
    *device = 0;
    return 0;
}

int cudaDriverGetVersion(int *version) {
    *version = CARD_CUDA;
    return 0;
}

int cudaRuntimeGetVersion(int *version) {
    *version = CARD_CUDA;
    return 0;
}

int cudaDeviceGetAttribute(int *value, int which, int device) {
    (void)device;
    *value = card_attribute(which);
    return 0;
}

/* The fields before multiProcessorCount lie alike in CUDA 12 and 13 but for one, of which 13 has no clock rate.
   Source: driver_types.h of both. */
static void describe(char *properties, size_t size, size_t multi_processors) {
    memset(properties, 0, size);
    strcpy(properties, own_card()->name);
    *(size_t *)(properties + 288) = card_total();
    *(int *)(properties + 308) = card_attribute(10);   /* warpSize */
    *(int *)(properties + 320) = card_attribute(1);    /* maxThreadsPerBlock */
    *(int *)(properties + 360) = card_attribute(75);   /* major */
    *(int *)(properties + 364) = card_attribute(76);   /* minor */
    *(int *)(properties + multi_processors) = card_attribute(16);
}

int cudaGetDeviceProperties_v2(char *properties, int device) {
    (void)device;
    describe(properties, 1032, 388);
    return 0;
}

int cudaGetDeviceProperties(char *properties, int device) {
    (void)device;
    describe(properties, 1008, 384);
    return 0;
}

int cudaDeviceGetPCIBusId(char *bus, int length, int device) {
    (void)device;
    strncpy(bus, CARD_BUS, length);
    return 0;
}

/* Memory */

int cudaMemGetInfo(size_t *free, size_t *total) {
    *free = card_free();
    *total = card_total();
    return 0;
}

int cudaMalloc(uintptr_t *address, size_t bytes) {
    *address = card_take(bytes);
    return *address || !bytes ? 0 : failed(OUT_OF_MEMORY);
}

int cudaMallocAsync(uintptr_t *address, size_t bytes, void *stream) {
    (void)stream;
    return cudaMalloc(address, bytes);
}

int cudaFree(uintptr_t address) {
    card_drop(address);
    return 0;
}

int cudaFreeAsync(uintptr_t address, void *stream) {
    (void)stream;
    return cudaFree(address);
}

int cudaHostAlloc(void **address, size_t bytes, unsigned flags) {
    (void)flags;
    return (*address = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095)) ? 0 : failed(OUT_OF_MEMORY);
}

int cudaFreeHost(void *address) {
    free(address);
    return 0;
}

int cudaDeviceGetDefaultMemPool(void **pool, int device) {
    (void)device;
    *pool = &thing;
    return 0;
}

int cudaMemPoolGetAttribute(void *pool, int which, uint64_t *value) {
    (void)pool, (void)which;
    *value = 0;
    return 0;
}

NOTHING(cudaMemPoolSetAttribute)
NOTHING(cudaMemPoolSetAccess)
NOTHING(cudaMemPoolTrimTo)
COPY(cudaMemcpy)
COPY(cudaMemcpyAsync)
COPY(cudaMemset)
COPY(cudaMemsetAsync)

/* Streams and events: all work is done when it is asked for, since there is none. */

int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    (void)flags, (void)priority;
    *stream = &thing;
    return 0;
}

int cudaEventCreateWithFlags(void **event, unsigned flags) {
    (void)flags;
    *event = &thing;
    return 0;
}

int cudaStreamIsCapturing(void *stream, int *status) {
    (void)stream;
    *status = 0;
    return 0;
}

int cudaStreamGetCaptureInfo_v2(void *stream, int *status) {
    return cudaStreamIsCapturing(stream, status);
}

int cudaStreamGetCaptureInfo(void *stream, int *status) {
    return cudaStreamIsCapturing(stream, status);
}

int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = *greatest = 0;
    return 0;
}

NOTHING(cudaSetDevice)
NOTHING(cudaDeviceSynchronize)
NOTHING(cudaStreamDestroy)
NOTHING(cudaStreamSynchronize)
NOTHING(cudaStreamQuery)
NOTHING(cudaStreamWaitEvent)
NOTHING(cudaEventDestroy)
NOTHING(cudaEventQuery)
NOTHING(cudaEventRecord)
NOTHING(cudaEventSynchronize)
NOTHING(cudaThreadExchangeStreamCaptureMode)

/* Programs are taken in and never run. */

void *__cudaRegisterFatBinary(void *binary) {
    (void)binary;
    return &thing;
}

NOTHING(__cudaRegisterFatBinaryEnd)
NOTHING(__cudaRegisterFunction)
NOTHING(__cudaRegisterVar)
NOTHING(__cudaUnregisterFatBinary)

int cudaLaunchKernel(void) {
    return failed(NOT_SUPPORTED);
}

/* Errors */

int cudaGetLastError(void) {
    int error = last;
    last = 0;
    return error;
}

int cudaPeekAtLastError(void) {
    return last;
}

const char *cudaGetErrorString(int error) {
    switch (error) {
    case 0: return "no error";
    case OUT_OF_MEMORY: return "out of memory";
    case NO_DEVICE: return "no CUDA-capable device is detected";
    default: return "not supported by the test card";
    }
}

const char *cudaGetErrorName(int error) {
    return cudaGetErrorString(error);
}

/* The way to the driver. */

int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                     int *status) {
    int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
    cuGetProcAddress_v2(name, function, version, flags, status);
    return 0; /* what is not there is said in the status alone */
}

int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status) {
    return cudaGetDriverEntryPointByVersion(name, function, CARD_CUDA, flags, status);
}

NOTHING(cudaProfilerStart)
NOTHING(cudaProfilerStop)

/* A variable of NVSHMEM that libtorch_nvshmem.so wants to see when it is loaded; functions may be missing until called. */
int nvshmem_selected_device_transport;
