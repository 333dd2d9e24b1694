/* Takes memory of a pretended card by raw calls of CUDA, in a forked process, in a started one, and by itself, at once.
 *
 * Usage: take [BLOCKS]. Each process takes blocks of 64 MiB, the children at most BLOCKS of them, and prints their MiB.
 * AGAIN is the shell's command that starts the program as a child, which gets "leaf" as its last word.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK_MIB = 64 };

static void take(int most) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) { fprintf(stderr, "%s\n", dlerror()); exit(1); }
    int (*init)(unsigned);
    int (*allocate)(uintptr_t *, size_t);
    *(void **)&init = dlsym(cuda, "cuInit");
    *(void **)&allocate = dlsym(cuda, "cuMemAlloc_v2");
    if (!init || !allocate || init(0)) exit(2);
    int taken = 0;
    uintptr_t address;
    while (taken < most && !allocate(&address, (size_t)BLOCK_MIB << 20)) taken++;
    printf("taken %d\n", taken * BLOCK_MIB);
    fflush(stdout);
}

/* Start a child that takes memory, wait until it has, and let it keep the memory until `keep` is closed. */
static void child(int most, const int keep[2], int started) {
    int ready[2];
    if (pipe(ready)) exit(3);
    if (!fork()) {
        close(keep[1]), close(ready[0]);
        char byte;
        if (started) {
            dup2(keep[0], 0), dup2(ready[1], 3);
            execl("/bin/sh", "sh", "-c", getenv("AGAIN"), (char *)0);
            exit(4);
        }
        take(most);
        (void)!write(ready[1], "", 1);
        (void)!read(keep[0], &byte, 1);
        exit(0);
    }
    char byte;
    close(ready[1]);
    (void)!read(ready[0], &byte, 1);
    close(ready[0]);
}

int main(int count, char **words) {
    int most = count > 1 ? atoi(words[1]) : 0;
    if (count > 2) { /* a started child */
        char byte;
        take(most);
        (void)!write(3, "", 1);
        (void)!read(0, &byte, 1);
        return 0;
    }
    int keep[2];
    if (pipe(keep)) return 3;
    child(most, keep, 0);
    child(most, keep, 1);
    take(1 << 20);
    close(keep[1]);
    while (wait(NULL) > 0)
        ;
    return 0;
}
