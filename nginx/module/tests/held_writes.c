/*
 * A library that tests preload into nginx (LD_PRELOAD). While PATH.held exists, writev() and close() of the regular
 * file PATH wait. The first call that waits creates PATH.stuck.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static void wait_while_held(int fd)
{
    int          mark;
    char         link[64], path[PATH_MAX], held[PATH_MAX + 8], stuck[PATH_MAX + 8];
    ssize_t      size;
    struct stat  status;

    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        return;
    }

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof(path) - 1);
    if (size < 0) {
        return;
    }

    path[size] = '\0';
    snprintf(held, sizeof(held), "%s.held", path);
    snprintf(stuck, sizeof(stuck), "%s.stuck", path);

    while (access(held, F_OK) == 0) {
        mark = open(stuck, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (mark != -1) {
            syscall(SYS_close, mark);
        }
        usleep(1000);
    }
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    wait_while_held(fd);
    return syscall(SYS_writev, fd, parts, count);
}

int close(int fd)
{
    wait_while_held(fd);
    return syscall(SYS_close, fd);
}
