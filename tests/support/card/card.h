/* Pretended NVIDIA cards: NVML, the CUDA driver and the CUDA runtime above one file that all processes share. They have
   memory, which they count by process, and time, which clock.py gives out. They never compute.

   CARD_STATE names the file; state.py makes it and has its layout once more. Without it there is no card. */
#ifndef CARD_H
#define CARD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { CARDS = 4, SLOTS = 640, LIMITS = 64 };

/* A process on a card. `held` says that it holds a lock on this slot in the file, as every process of CUDA does: the
   kernel takes the lock back when the process ends in whatever way, as the driver takes memory back, and tells its PID
   as the one who asks knows it. Without `held` a test wrote the slot, for the process with this PID and start. `copied` is when it
   copied or set memory last, as NVML stamps samples. */
struct slot {
    _Atomic uint64_t pid, start, memory, sm, stamp, instance, mps, held, queued, done, copied;
    char cgroup[256]; /* of a held one: its path below the mount of version 2 */
};

/* A limit of the driver for all processes of a cgroup: the whole path of a folder, and bytes. */
struct limit {
    char path[512];
    uint64_t soft, hard;
};

/* In bytes. `fault` is an error of NVML, `small` makes its lists too small, `limits` says whether the driver has limits
   (1), or refuses them (2). `garbage` is a count of samples of a process that is not on the card; its PID, percent and
   stamp may be chosen. `missing` says what an older driver lacks: the function of MPS (1), events (2), the samples of
   processes (4). `context` and `compile` are the microseconds that a context and a process's first kernel take. `peak` and `refused` are counted. */
struct card {
    uint64_t present, total, reserved, busy, fault, instances, small, limits, xid, garbage;
    uint64_t garbage_pid, garbage_sm, garbage_stamp, missing, context, compile;
    _Atomic uint64_t peak, refused;
    char uuid[64], name[64];
    struct slot slots[SLOTS];
    struct limit limited[LIMITS];
};

/* `clock` is the card's own time in microseconds; at 0 no clock runs, and all work is done at once. */
struct state {
    uint64_t cards;
    _Atomic uint64_t clock;
    struct card card[CARDS];
};

/* Open the file, or once more; NULL without one. NVML and CUDA in one process share it: to close it would end its locks. */
struct state *state_open(void);
void state_close(void);

/* The PID of the process on a slot, or 0 when there is none any more. */
uint64_t slot_owner(const struct slot *slot);

/* The bytes that all processes on a card take. */
uint64_t card_used(const struct card *card);

/* The rest is about the card of this process: the one that NVIDIA_VISIBLE_DEVICES names, else the first. */
struct card *own_card(void);
struct slot *own_slot(void);
size_t card_total(void);
size_t card_free(void);

/* Take memory; 0 when the card has no more, or when the driver's limit of the process's cgroup is reached. Nothing lies
   behind the addresses. */
uintptr_t card_take(size_t bytes);

/* One more, or one less, that holds what card_take gave: the last one gives the memory back. */
void card_hold(uintptr_t address);
void card_drop(uintptr_t address);

/* The start and size of the memory that an address lies in; 0 when it lies in none. */
int card_find(uintptr_t address, uintptr_t *start, size_t *bytes);

/* Addresses alone, without memory. */
uintptr_t card_reserve(size_t bytes);

/* Queue so many microseconds of work, and wait until all that was queued is done. */
int card_work(uint64_t microseconds);
void card_wait(void);

/* Note that this process has copied or set memory of the card just now. */
int card_copy(void);

/* The attributes of the card: those of the driver's and the runtime's enums, which agree. Unknown ones are 0. */
int card_attribute(int which);

#define CARD_BUS "0000:00:04.0"
#define CARD_CUDA 13020 /* at least as new as any runtime that is tried */
#define CARD_DRIVER "615.10"

/* A function that has nothing to do here. The calling convention lets it be called with any arguments. */
#define NOTHING(name) \
    int name(void) { return 0; }

/* A function that copies or sets memory. Nothing lies behind the addresses, so nothing is moved. */
#define COPY(name) \
    int name(void) { return card_copy(); }

/* A function that is there to be found, and of no use. */
#define UNSUPPORTED(name, error) \
    int name(void) { return error; }

#endif
