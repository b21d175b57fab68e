#define _GNU_SOURCE
#include "CLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int spoolgate_open_nameless(int directory, const char *path, unsigned mode) {
    return openat(directory, path, O_TMPFILE | O_RDWR | O_CLOEXEC, (mode_t) mode);
}

int spoolgate_sync_file_system(int descriptor) {
    return syncfs(descriptor);
}

void spoolgate_begin_write_back(int descriptor, int64_t position, int64_t count) {
    (void) sync_file_range(descriptor, position, count, SYNC_FILE_RANGE_WRITE);
}

int64_t spoolgate_copy(int source, int64_t from, int target, int64_t to, int64_t count) {
    off_t at = from, end = to;

    return copy_file_range(source, &at, target, &end, (size_t) count, 0);
}

/* The lock covers every byte that a file can have; the mark is a byte beyond them. */
#define MARK ((off_t) 1 << 62)

static struct flock lock_of(short type, off_t start, off_t length) {
    struct flock lock;

    memset(&lock, 0, sizeof(lock));
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = start;
    lock.l_len = length;
    return lock;
}

/* 1: another open file description has a lock that conflicts with `lock`; 0: none has; -1: error. */
static int conflicts(int descriptor, struct flock lock) {
    if (fcntl(descriptor, F_OFD_GETLK, &lock) == -1) {
        return -1;
    }
    return lock.l_type != F_UNLCK;
}

int spoolgate_try_lock(int descriptor) {
    struct flock lock = lock_of(F_WRLCK, 0, MARK);

    if (fcntl(descriptor, F_OFD_SETLK, &lock) == 0) {
        return 0;
    }
    return errno == EAGAIN || errno == EACCES ? 1 : -1;
}

int spoolgate_is_locked(int descriptor) {
    return conflicts(descriptor, lock_of(F_WRLCK, 0, MARK));
}

int spoolgate_set_mark(int descriptor, int on) {
    struct flock lock = lock_of(on ? F_RDLCK : F_UNLCK, MARK, 1);

    return fcntl(descriptor, F_OFD_SETLK, &lock);
}

int spoolgate_is_marked(int descriptor) {
    return conflicts(descriptor, lock_of(F_WRLCK, MARK, 1));
}

int spoolgate_memory_file(const char *name) {
    return memfd_create(name, MFD_CLOEXEC);
}
