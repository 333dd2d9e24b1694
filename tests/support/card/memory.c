/* The memory of this process's card: how much was taken, and by which blocks of this process. */
#define _GNU_SOURCE
#include "card.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct block {
    uintptr_t address;
    size_t bytes;
    int holders;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static size_t count, room;
static uintptr_t next = 0x7a0000000000;

static void fail(const char *what) {
    perror(what);
    abort();
}

size_t card_total(void) {
    return own_card() ? own_card()->total : 0;
}

size_t card_free(void) {
    if (!own_card()) return 0;
    uint64_t used = card_used(own_card());
    return used < card_total() ? card_total() - used : 0;
}

/* Write down the cgroup of this process, which may have been moved since. */
static void find_cgroup(struct slot *slot) {
    char line[512];
    FILE *file = fopen("/proc/self/cgroup", "re");
    slot->cgroup[0] = 0;
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "0::", 3)) {
            line[strcspn(line, "\n")] = 0;
            snprintf(slot->cgroup, sizeof slot->cgroup, "%.255s", line + 3);
        }
    if (file) fclose(file);
}

/* Whether a cgroup is the limited one, or lies in it. A limit's path begins with the mount, a cgroup's below it. */
static int inside(const char *cgroup, const char *limited) {
    char path[256];
    snprintf(path, sizeof path, "%s", cgroup);
    for (char *end; *path && strcmp(path, "/"); *end = 0) {
        size_t has = strlen(limited), wants = strlen(path);
        if (has >= wants && !strcmp(limited + has - wants, path)) return 1;
        if (!(end = strrchr(path, '/'))) return 0;
    }
    return 0;
}

/* Whether what all processes take fits the card, and the limits of the driver (nvml.h 13.5, nvmlDeviceSetMemoryLimits_v1). */
static int fits(const struct card *card, const struct slot *slot) {
    if (card_used(card) > card->total) return 0;
    for (int i = 0; i < LIMITS; i++) {
        const struct limit *limit = &card->limited[i];
        if (!limit->path[0] || !inside(slot->cgroup, limit->path)) continue;
        uint64_t used = 0;
        for (int s = 0; s < SLOTS; s++) {
            const struct slot *each = &card->slots[s];
            if (each->held && each->memory && inside(each->cgroup, limit->path) && slot_owner(each)) used += each->memory;
        }
        if (used > limit->hard) return 0;
    }
    return 1;
}

/* The limit of a client of MPS in bytes, which a test's control program writes down in MiB; 0 for one that is no client. */
static uint64_t mps_limit(void) {
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[512];
    unsigned long mib = 0;
    snprintf(path, sizeof path, "%s/limit", folder ? folder : "");
    FILE *file = folder ? fopen(path, "re") : NULL;
    if (file && fscanf(file, "%lu", &mib) != 1) mib = 0;
    if (file) fclose(file);
    return (uint64_t)mib << 20;
}

/* Take first and look then, without a lock: whoever is frozen or killed in between holds nobody up. */
static int charge(size_t bytes) {
    struct card *card = own_card();
    struct slot *slot = card ? own_slot() : NULL;
    if (!slot) return 0;
    find_cgroup(slot);
    uint64_t limit = mps_limit();
    slot->mps = limit != 0;
    slot->memory += bytes;
    if ((limit && slot->memory > limit) || !fits(card, slot)) {
        slot->memory -= bytes;
        card->refused++;
        return 0;
    }
    uint64_t used = card_used(card), peak = card->peak;
    while (peak < used && !atomic_compare_exchange_weak(&card->peak, &peak, used))
        ;
    return 1;
}

static uintptr_t addresses(size_t bytes) {
    uintptr_t start = next;
    next += (bytes + 0x3fffff) & ~(uintptr_t)0x1fffff; /* blocks start at 2 MiB and never touch */
    return start;
}

static struct block *block_of(uintptr_t address) {
    for (size_t i = 0; i < count; i++)
        if (address >= blocks[i].address && address < blocks[i].address + blocks[i].bytes) return &blocks[i];
    return NULL;
}

uintptr_t card_take(size_t bytes) {
    uintptr_t address = 0;
    pthread_mutex_lock(&lock);
    if (bytes && charge(bytes)) {
        if (count == room) {
            room = room ? 2 * room : 64;
            blocks = realloc(blocks, room * sizeof *blocks);
            if (!blocks) fail("realloc");
        }
        address = addresses(bytes);
        blocks[count++] = (struct block){address, bytes, 1};
    }
    pthread_mutex_unlock(&lock);
    return address;
}

void card_hold(uintptr_t address) {
    pthread_mutex_lock(&lock);
    struct block *block = block_of(address);
    if (block) block->holders++;
    pthread_mutex_unlock(&lock);
}

void card_drop(uintptr_t address) {
    pthread_mutex_lock(&lock);
    struct block *block = block_of(address);
    if (block && --block->holders == 0) {
        struct slot *slot = own_slot();
        if (slot && slot->memory >= block->bytes) slot->memory -= block->bytes; /* a child has none of its parent's */
        *block = blocks[--count];
    }
    pthread_mutex_unlock(&lock);
}

int card_find(uintptr_t address, uintptr_t *start, size_t *bytes) {
    pthread_mutex_lock(&lock);
    struct block *block = block_of(address);
    if (block) *start = block->address, *bytes = block->bytes;
    pthread_mutex_unlock(&lock);
    return block != NULL;
}

uintptr_t card_reserve(size_t bytes) {
    pthread_mutex_lock(&lock);
    uintptr_t start = addresses(bytes);
    pthread_mutex_unlock(&lock);
    return start;
}

/* Work. Queued work is done whether its process runs or is frozen, but not after its end. */

static struct state *timed(void) {
    static struct state *state;
    if (!state && own_card()) state = state_open();
    return state && state->clock ? state : NULL;
}

int card_work(uint64_t microseconds) {
    struct slot *slot = timed() ? own_slot() : NULL;
    if (slot) slot->queued += microseconds;
    return 0;
}

int card_copy(void) {
    struct slot *slot = own_card() ? own_slot() : NULL;
    struct timespec now;
    if (slot && !clock_gettime(CLOCK_REALTIME, &now)) slot->copied = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    return 0;
}

void card_wait(void) {
    struct slot *slot = timed() ? own_slot() : NULL;
    while (slot && slot->done < slot->queued) usleep(1000);
}
