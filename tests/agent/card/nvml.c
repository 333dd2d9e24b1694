/* NVIDIA's management library as the agent asks it, answered from a file that tests/agent/card/state.py keeps.

   The structures and error numbers are those of nvml.h 13. A process counts while the one with its PID and its start
   lives, as the driver takes memory back when a process's files close. The file is read anew at each question. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, SMALL = 7,
       DRIVER_NOT_LOADED = 9, OPERATING_SYSTEM = 17, TIMEOUT = 10 };
enum { CARDS = 4, SLOTS = 640, INSTANCES = 4, LIMITS = 64 };

struct slot { uint64_t pid, start, memory, sm, stamp, instance, mps; };
struct limit { char path[512]; uint64_t soft, hard; };
struct card {
    uint64_t present, total, reserved, busy, fault, instances, small, limits, xid, garbage;
    struct slot slots[SLOTS];
    struct limit limited[LIMITS];
};
struct state { uint64_t cards; struct card card[CARDS]; };

struct handle { unsigned card, instance; }; /* instance 0 is the whole card */
static struct handle handles[CARDS][INSTANCES + 1];
static struct state *state;

struct process { unsigned pid; unsigned long long memory; unsigned gi, ci; };
struct sample { unsigned pid; unsigned long long stamp; unsigned sm, memory, encoder, decoder; };
struct limits { const char *path; unsigned long long soft, hard; };
struct event { void *device; unsigned long long type, data; unsigned gi, ci; };

static uint64_t started(uint64_t pid) {
    char path[64], text[1024], *end;
    snprintf(path, sizeof path, "/proc/%lu/stat", (unsigned long)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    if (n <= 0) return 0;
    text[n] = 0;
    if (!(end = strrchr(text, ')')) || end[2] == 'Z' || end[2] == 'X') return 0;
    for (int field = 0; *++end;)
        if (*end == ' ' && ++field == 20) return strtoull(end + 1, NULL, 10);
    return 0;
}

static struct card *of(void *device) { return &state->card[((struct handle *)device)->card]; }
static int whole(void *device) { return !((struct handle *)device)->instance; }

static int there(void *device, const struct slot *slot) {
    unsigned instance = ((struct handle *)device)->instance;
    if (!slot->pid || (instance && slot->instance != instance)) return 0;
    return slot->start == 0 || started(slot->pid) == slot->start; /* a start of 0: garbage that a driver gives */
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const char *path = getenv("CARD_STATE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return DRIVER_NOT_LOADED;
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    for (unsigned c = 0; c < CARDS; c++)
        for (unsigned i = 0; i <= INSTANCES; i++) handles[c][i] = (struct handle){c, i};
    return state == MAP_FAILED ? DRIVER_NOT_LOADED : OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    if (!state) return UNINITIALIZED;
    munmap(state, sizeof *state);
    state = NULL;
    return OK;
}
const char *nvmlErrorString(int error) { return error == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "an error of the pretended card"; }
int nvmlSystemGetDriverVersion(char *text, unsigned n) { return snprintf(text, n, "615.10"), OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = (unsigned)state->cards, OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= state->cards) return INVALID;
    return *device = &handles[index][0], OK;
}
int nvmlDeviceGetName(void *device, char *text, unsigned n) { (void)device; return snprintf(text, n, "Pretended Card"), OK; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned n) {
    struct handle *handle = device;
    if (of(device)->fault == 15) return 15; /* lost */
    if (handle->instance) snprintf(text, n, "MIG-00000000-0000-0000-0000-%06u%06u", handle->card, handle->instance);
    else snprintf(text, n, "GPU-00000000-0000-0000-0000-%012u", handle->card);
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
    memory[2] = card->reserved;
    for (int i = 0; i < SLOTS; i++)
        if (card->slots[i].start && there(device, &card->slots[i])) memory[2] += card->slots[i].memory;
    memory[1] = memory[0] - memory[2];
    return OK;
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
    if (card->small && list) return SMALL;
    unsigned n = 0, room = *count;
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &card->slots[i];
        if (!there(device, slot) || (int)slot->mps != mps) continue;
        if (n < room && list) list[n] = (struct process){(unsigned)slot->pid, slot->memory, ~0u, ~0u};
        n++;
    }
    *count = n;
    return n > room ? SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, struct process *list) { return processes(d, count, list, 0); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *d, unsigned *count, struct process *list) { return processes(d, count, list, 1); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *d, unsigned *count, struct process *list) { return processes(d, count, list, 2); }

int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count, unsigned long long since) {
    struct card *card = of(device);
    if (card->fault) return (int)card->fault;
    if (!whole(device) || card->instances) return NOT_SUPPORTED;
    unsigned n = 0, room = *count;
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &card->slots[i];
        if (!slot->sm || slot->stamp <= since || !there(device, slot)) continue;
        if (samples && n < room) samples[n] = (struct sample){(unsigned)slot->pid, slot->stamp, (unsigned)slot->sm, 0, 0, 0};
        n++;
    }
    for (unsigned g = 0; g < card->garbage; g++, n++) /* entries of no process, over 100 % (nvtop#110) */
        if (samples && n < room) samples[n] = (struct sample){4294967295u, since + 1, 4000000u, 0, 0, 0};
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

static char set;
int nvmlEventSetCreate(void **events) { return *events = &set, OK; }
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
