#define _GNU_SOURCE
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int spoolgate_open_nameless(int directory, const char *path, unsigned mode) {
    return openat(directory, path, O_TMPFILE | O_RDWR | O_CLOEXEC, (mode_t) mode);
}

int spoolgate_link_descriptor(int descriptor, int directory, const char *path) {
    char source[32];

    snprintf(source, sizeof(source), "/proc/self/fd/%d", descriptor);
    return linkat(AT_FDCWD, source, directory, path, AT_SYMLINK_FOLLOW);
}

static struct flock whole_file(void) {
    struct flock lock;

    memset(&lock, 0, sizeof(lock));
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return lock;
}

int spoolgate_try_lock(int descriptor) {
    struct flock lock = whole_file();

    if (fcntl(descriptor, F_OFD_SETLK, &lock) == 0) {
        return 0;
    }
    return errno == EAGAIN || errno == EACCES ? 1 : -1;
}

int spoolgate_wait_lock(int descriptor) {
    struct flock lock = whole_file();
    int          status;

    do {
        status = fcntl(descriptor, F_OFD_SETLKW, &lock);
    } while (status == -1 && errno == EINTR);
    return status;
}

int spoolgate_is_locked(int descriptor) {
    struct flock lock = whole_file();

    if (fcntl(descriptor, F_OFD_GETLK, &lock) == -1) {
        return -1;
    }
    return lock.l_type != F_UNLCK;
}
