/* The file that all processes share: its slots, and who is on them. */
#define _GNU_SOURCE
#include "card.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct state *state;
static int file = -1, users;

struct state *state_open(void) {
    pthread_mutex_lock(&lock);
    const char *path = getenv("CARD_STATE");
    if (!users && path && (file = open(path, O_RDWR | O_CLOEXEC)) >= 0) {
        state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (state == MAP_FAILED) close(file), state = NULL;
    }
    users += state != NULL;
    pthread_mutex_unlock(&lock);
    return state;
}

void state_close(void) {
    pthread_mutex_lock(&lock);
    if (users && !--users) munmap(state, sizeof *state), close(file), state = NULL;
    pthread_mutex_unlock(&lock);
}

/* When a process was started, in clock ticks since boot; 0 when it has ended (man 5 proc_pid_stat, field 22). */
static uint64_t started(uint64_t pid) {
    char path[64], text[1024], *end;
    snprintf(path, sizeof path, "/proc/%lu/stat", (unsigned long)pid);
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0) return 0;
    ssize_t n = read(opened, text, sizeof text - 1);
    close(opened);
    if (n <= 0) return 0;
    text[n] = 0;
    if (!(end = strrchr(text, ')')) || end[2] == 'Z' || end[2] == 'X') return 0;
    for (int field = 0; *++end;)
        if (*end == ' ' && ++field == 20) return strtoull(end + 1, NULL, 10);
    return 0;
}

static struct flock byte_of(const struct slot *slot) {
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (char *)slot - (char *)state, .l_len = 1};
}

static const struct slot *own; /* and the process it belongs to: a child has no locks of its parent */
static pid_t owner;

uint64_t slot_owner(const struct slot *slot) {
    if (slot->held) {
        if (slot == own && owner == getpid()) return (uint64_t)owner;
        struct flock asked = byte_of(slot);
        return fcntl(file, F_GETLK, &asked) || asked.l_type == F_UNLCK ? 0 : (uint64_t)asked.l_pid;
    }
    /* A start of 0: garbage that a driver gives. */
    return slot->pid && (slot->start == 0 || started(slot->pid) == slot->start) ? slot->pid : 0;
}

uint64_t card_used(const struct card *card) {
    uint64_t used = card->reserved;
    for (int i = 0; i < SLOTS; i++) {
        const struct slot *slot = &card->slots[i];
        if ((slot->held || slot->start) && slot->memory && slot_owner(slot)) used += slot->memory;
    }
    return used;
}

struct card *own_card(void) {
    static struct card *card;
    static int asked;
    if (!asked) {
        struct state *all = state_open(); /* never closed: this process may hold a lock */
        const char *visible = getenv("NVIDIA_VISIBLE_DEVICES");
        for (uint64_t i = 0; all && i < all->cards; i++)
            if (!card || (visible && !strcmp(visible, all->card[i].uuid))) card = &all->card[i];
        asked = 1;
    }
    return card;
}

/* The slot of this process, taken at its first use of the card; NULL when all are taken. */
struct slot *own_slot(void) {
    struct card *card = own_card();
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SLOTS && owner != getpid(); i++) {
        struct slot *slot = &card->slots[i];
        struct flock wanted = byte_of(slot);
        if ((slot->pid && !slot->held) || fcntl(file, F_SETLK, &wanted)) continue; /* a test's, or another process's */
        slot->memory = slot->sm = slot->stamp = slot->instance = slot->mps = slot->queued = slot->done = slot->copied = 0;
        slot->pid = slot->held = 1;
        own = slot, owner = getpid();
    }
    pthread_mutex_unlock(&lock);
    return owner == getpid() ? (struct slot *)own : NULL;
}
