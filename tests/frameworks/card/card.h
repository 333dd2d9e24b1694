/* A pretended NVIDIA card: it has memory, which it counts, and nothing else. It never computes. */
#ifndef CARD_H
#define CARD_H

#include <stddef.h>
#include <stdint.h>

/* Memory, in bytes. CARD_MIB says how much the card has; CARD_LEDGER names a file in which it is counted, so that
   several processes can share one card and others can read what they took. */
size_t card_total(void);
size_t card_free(void);

/* Take memory; 0 when the card has no more. Nothing lies behind the addresses. */
uintptr_t card_take(size_t bytes);

/* One more, or one less, that holds what card_take gave: the last one gives the memory back. */
void card_hold(uintptr_t address);
void card_drop(uintptr_t address);

/* The start and size of the memory that an address lies in; 0 when it lies in none. */
int card_find(uintptr_t address, uintptr_t *start, size_t *bytes);

/* Addresses alone, without memory. */
uintptr_t card_reserve(size_t bytes);

/* What the card is: the attributes of the driver's and the runtime's enums, which agree. Unknown ones are 0. */
int card_attribute(int which);

#define CARD_NAME "Slicewarden test card"
#define CARD_BUS "0000:00:04.0"
#define CARD_DRIVER 13020 /* at least as new as any runtime that is tried */

/* A function that has nothing to do here. The calling convention lets it be called with any arguments. */
#define NOTHING(name) \
    int name(void) { return 0; }

/* A function that is there to be found, and of no use. */
#define UNSUPPORTED(name, error) \
    int name(void) { return error; }

#endif
