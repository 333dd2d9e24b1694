/* The card's memory: how much was taken, and by which blocks of this process. */
#define _GNU_SOURCE
#include "card.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The file's layout; its reader is ledger.py. */
struct ledger {
    _Atomic uint64_t used, peak, refused;
};

struct block {
    uintptr_t address;
    size_t bytes;
    int holders;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ledger *ledger;
static struct block *blocks;
static size_t count, room;
static uintptr_t next = 0x7a0000000000;

static void fail(const char *what) {
    perror(what);
    abort();
}

__attribute__((constructor)) static void open_ledger(void) {
    const char *path = getenv("CARD_LEDGER");
    int file = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (path && (file < 0 || ftruncate(file, sizeof *ledger))) fail(path);
    ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, path ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, file, 0);
    if (ledger == MAP_FAILED) fail("mmap");
    if (path) close(file);
}

size_t card_total(void) {
    const char *mib = getenv("CARD_MIB");
    return mib ? strtoull(mib, NULL, 10) << 20 : 0;
}

size_t card_free(void) {
    return card_total() - ledger->used;
}

/* Both counts are of all processes, so they change by atomic steps alone. */
static int charge(size_t bytes) {
    uint64_t used = ledger->used, peak = ledger->peak;
    do {
        if (bytes > card_total() - used) {
            ledger->refused++;
            return 0;
        }
    } while (!atomic_compare_exchange_weak(&ledger->used, &used, used + bytes));
    while (peak < used + bytes && !atomic_compare_exchange_weak(&ledger->peak, &peak, used + bytes))
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
        ledger->used -= block->bytes;
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

/* A process that ends gives back what it has, unless it is killed. */
__attribute__((destructor)) static void give_back(void) {
    for (size_t i = 0; i < count; i++) ledger->used -= blocks[i].bytes;
}
