/* Holds a pod's namespaces until it is told to end, and reaps what is left to it. */
#include <signal.h>
#include <sys/wait.h>

int main(void) {
    sigset_t told;
    int which;
    sigemptyset(&told);
    sigaddset(&told, SIGTERM);
    sigaddset(&told, SIGINT);
    sigaddset(&told, SIGCHLD);
    sigprocmask(SIG_BLOCK, &told, 0);
    while (!sigwait(&told, &which) && which == SIGCHLD)
        while (waitpid(-1, 0, WNOHANG) > 0) {
        }
    return 0;
}
