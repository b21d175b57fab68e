#define _GNU_SOURCE
#include "CLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int spoolgate_spawn(const char *path, char *const arguments[], char *const environment[],
                    int output, int errors, int32_t *child) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t          attributes;
    sigset_t                   none, all;
    int                        status;

    if ((status = posix_spawn_file_actions_init(&actions)) != 0) {
        return status;
    }
    if ((status = posix_spawnattr_init(&attributes)) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return status;
    }
    sigemptyset(&none);
    sigfillset(&all);
    if ((status = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)) == 0
        && (status = posix_spawn_file_actions_adddup2(&actions, output, 1)) == 0
        && (status = posix_spawn_file_actions_adddup2(&actions, errors, 2)) == 0
        /* Closes descriptors that a library opened without close-on-exec. */
        && (status = posix_spawn_file_actions_addclosefrom_np(&actions, 3)) == 0
        && (status = posix_spawnattr_setsigmask(&attributes, &none)) == 0
        && (status = posix_spawnattr_setsigdefault(&attributes, &all)) == 0
        && (status = posix_spawnattr_setpgroup(&attributes, 0)) == 0
        && (status = posix_spawnattr_setflags(&attributes,
                                              POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF
                                              | POSIX_SPAWN_SETPGROUP)) == 0)
    {
        status = posix_spawn(child, path, &actions, &attributes, arguments, environment);
    }
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

int spoolgate_pipe(int ends[2]) {
    return pipe2(ends, O_CLOEXEC);
}

int spoolgate_widen_pipe(int pipe, int size) {
    int now = fcntl(pipe, F_GETPIPE_SZ);

    return now < 0 || now >= size ? now : fcntl(pipe, F_SETPIPE_SZ, size);
}

int spoolgate_open_process(int32_t process) {
    /* Close-on-exec by default. */
    return (int) syscall(SYS_pidfd_open, process, 0);
}

int spoolgate_reap(int32_t process) {
    int   status;
    int32_t ended;

    do {
        ended = waitpid(process, &status, 0);
    } while (ended == -1 && errno == EINTR);
    if (ended == -1) {
        return -1;
    }
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}
