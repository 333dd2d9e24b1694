/* NVIDIA's management library, as the agent, frameworks and bench/gpu ask it.

   The structures and error numbers are those of nvml.h 13. The file is read anew at each question. */
#define _GNU_SOURCE
#include "card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, SMALL = 7,
       DRIVER_NOT_LOADED = 9, TIMEOUT = 10, FUNCTION_NOT_FOUND = 13, LOST = 15, OPERATING_SYSTEM = 17 };
enum { NO_MPS = 1, NO_EVENTS = 2, NO_SAMPLES = 4, NO_RESERVED = 8 }; /* bits of a card's `missing` */
enum { INSTANCES = 4 };

struct handle { unsigned card, instance; }; /* instance 0 is the whole card */
static struct handle handles[CARDS][INSTANCES + 1];
static struct state *state;

struct process { unsigned pid; unsigned long long memory; unsigned gi, ci; };
struct sample { unsigned pid; unsigned long long stamp; unsigned sm, memory, encoder, decoder; };
struct limits { const char *path; unsigned long long soft, hard; };
struct event { void *device; unsigned long long type, data; unsigned gi, ci; };

static struct card *of(void *device) { return &state->card[((struct handle *)device)->card]; }
static int whole(void *device) { return !((struct handle *)device)->instance; }

/* The PID of the process on a slot, if it is on this card or instance; else 0. */
static uint64_t on(void *device, const struct slot *slot) {
    unsigned instance = ((struct handle *)device)->instance;
    return instance && slot->instance != instance ? 0 : slot_owner(slot);
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    struct state *opened = state_open();
    if (!opened) return DRIVER_NOT_LOADED;
    state = opened;
    for (unsigned c = 0; c < CARDS; c++)
        for (unsigned i = 0; i <= INSTANCES; i++) handles[c][i] = (struct handle){c, i};
    return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    if (!state) return UNINITIALIZED;
    state_close();
    return OK;
}
const char *nvmlErrorString(int error) {
    return !error ? "success" : error == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "an error of the pretended card";
}
int nvmlSystemGetDriverVersion(char *text, unsigned n) { return snprintf(text, n, CARD_DRIVER), OK; }
int slicewarden_pretended_card = 1; /* by which whoever measures can tell */
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = CARD_CUDA, OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = (unsigned)state->cards, OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= state->cards) return INVALID;
    if (state->card[index].fault == LOST) return LOST;
    return *device = &handles[index][0], OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    for (unsigned index = 0; index < state->cards; index++)
        if (!strcmp(state->card[index].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2(index, device);
    return NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) { (void)bus; return nvmlDeviceGetHandleByIndex_v2(0, device); }
int nvmlDeviceGetName(void *device, char *text, unsigned n) { return snprintf(text, n, "%s", of(device)->name), OK; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned n) {
    struct handle *handle = device;
    if (of(device)->fault == LOST) return LOST;
    if (handle->instance) snprintf(text, n, "MIG-00000000-0000-0000-0000-%06u%06u", handle->card, handle->instance);
    else snprintf(text, n, "%s", of(device)->uuid);
    return OK;
}
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *next) { return *now = *next = of(device)->instances != 0, OK; }
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { (void)device; return *count = INSTANCES, OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance) {
    if (index >= of(device)->instances) return NOT_FOUND;
    return *instance = &handles[((struct handle *)device)->card][index + 1], OK;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]) {
    struct card *card = of(device);
    if (card->fault) return (int)card->fault;
    memory[0] = whole(device) ? card->total : card->total / card->instances;
    memory[2] = whole(device) ? card_used(card) : card->reserved;
    for (int i = 0; i < SLOTS && !whole(device); i++)
        if (on(device, &card->slots[i])) memory[2] += card->slots[i].memory;
    memory[1] = memory[0] - memory[2];
    return OK;
}

struct memory { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
    unsigned long long first[3];
    if (of(device)->missing & NO_RESERVED) return FUNCTION_NOT_FOUND;
    int error = nvmlDeviceGetMemoryInfo(device, first);
    if (error) return error;
    memory->total = first[0], memory->reserved = of(device)->reserved, memory->free = first[1];
    return memory->used = first[2] - memory->reserved, OK;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]) {
    struct card *card = of(device);
    if (card->fault) return (int)card->fault;
    if (!whole(device)) return NOT_SUPPORTED;
    rates[0] = (unsigned)card->busy, rates[1] = rates[0] / 2;
    return OK;
}

static int processes(void *device, unsigned *count, struct process *list, int mps) {
    struct card *card = of(device);
    if (card->fault) return (int)card->fault;
    if (mps == 1 && card->missing & NO_MPS) return FUNCTION_NOT_FOUND;
    if (card->small && list) return SMALL;
    unsigned n = 0, room = *count;
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &card->slots[i];
        uint64_t pid = slot->pid && (int)slot->mps == mps ? on(device, slot) : 0;
        if (!pid) continue;
        if (n < room && list) list[n] = (struct process){(unsigned)pid, slot->memory, ~0u, ~0u};
        n++;
    }
    *count = n;
    return n > room ? SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, struct process *list) { return processes(d, count, list, 0); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *d, unsigned *count, struct process *list) { return processes(d, count, list, 1); }
int nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *count, struct process *list) { return processes(d, count, list, 0); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *d, unsigned *count, struct process *list) { return processes(d, count, list, 2); }

int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count, unsigned long long since) {
    struct card *card = of(device);
    if (card->fault) return (int)card->fault;
    if (card->missing & NO_SAMPLES) return FUNCTION_NOT_FOUND;
    if (!whole(device) || card->instances) return NOT_SUPPORTED;
    unsigned n = 0, room = *count;
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &card->slots[i];
        uint64_t sm = slot->stamp > since ? slot->sm : 0, copied = slot->copied > since ? slot->copied : 0;
        uint64_t pid = sm || copied ? on(device, slot) : 0;
        if (!pid) continue;
        uint64_t stamp = sm && slot->stamp > copied ? slot->stamp : copied;
        if (samples && n < room) samples[n] = (struct sample){(unsigned)pid, stamp, (unsigned)sm, copied != 0, 0, 0};
        n++;
    }
    for (unsigned g = 0; g < card->garbage; g++, n++) /* unless chosen, of no process and over 100 % (nvtop#110) */
        if (samples && n < room)
            samples[n] = (struct sample){card->garbage_pid ? (unsigned)card->garbage_pid : 4294967295u,
                                         card->garbage_stamp ? card->garbage_stamp : since + 1,
                                         card->garbage_sm ? (unsigned)card->garbage_sm : 4000000u, 0, 0, 0};
    *count = n;
    return n == 0 ? NOT_FOUND : n > room || !samples ? SMALL : OK;
}

int nvmlDeviceSetMemoryLimits_v1(void *device, struct limits *limits) {
    struct card *card = of(device);
    if (!card->limits || !whole(device)) return NOT_SUPPORTED;
    if (card->limits > 1) return NO_PERMISSION;
    if (limits->soft > limits->hard || (limits->hard != ~0ull && limits->hard > card->total)) return INVALID;
    if (access(limits->path, F_OK)) return OPERATING_SYSTEM;
    struct limit *free = NULL;
    for (int i = 0; i < LIMITS; i++) {
        struct limit *each = &card->limited[i];
        if (!strcmp(each->path, limits->path)) { free = each; break; }
        if (!free && !each->path[0]) free = each;
    }
    if (!free) return INVALID;
    snprintf(free->path, sizeof free->path, "%s", limits->hard == ~0ull ? "" : limits->path);
    free->soft = limits->soft, free->hard = limits->hard;
    return OK;
}

int nvmlDeviceGetMemoryLimits_v1(void *device, struct limits *limits) {
    struct card *card = of(device);
    if (!card->limits || !whole(device)) return NOT_SUPPORTED;
    limits->soft = 0, limits->hard = ~0ull;
    for (int i = 0; i < LIMITS; i++)
        if (card->limited[i].path[0] && !strcmp(card->limited[i].path, limits->path))
            limits->soft = card->limited[i].soft, limits->hard = card->limited[i].hard;
    return OK;
}

static char set;
int nvmlEventSetCreate(void **events) { return state->card[0].missing & NO_EVENTS ? NOT_SUPPORTED : (*events = &set, OK); }
int nvmlEventSetFree(void *events) { (void)events; return OK; }
int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types) { (void)device; return *types = 0x8 | 0x2, OK; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *events) { (void)device, (void)types, (void)events; return OK; }
int nvmlEventSetWait_v2(void *events, struct event *event, unsigned milliseconds) {
    (void)events, (void)milliseconds;
    for (unsigned c = 0; c < state->cards; c++)
        if (state->card[c].xid) {
            *event = (struct event){&handles[c][0], 0x8, state->card[c].xid, ~0u, ~0u};
            state->card[c].xid = 0;
            return OK;
        }
    return TIMEOUT;
}

UNSUPPORTED(nvmlDeviceGetGpuFabricInfoV, NOT_SUPPORTED)
UNSUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType, NOT_SUPPORTED)
UNSUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2, NOT_SUPPORTED)
