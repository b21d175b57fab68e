/* Calls on files. */
#ifndef SPOOLGATE_CLINUX_DISK_H
#define SPOOLGATE_CLINUX_DISK_H

#include <stddef.h>
#include <stdint.h>

/* openat(2) with O_TMPFILE | O_RDWR | O_CLOEXEC: a file without a name, on the file system of
   `directory`/`path`. -1 and EOPNOTSUPP, EISDIR or ENOENT where the file system has no such files. */
int spoolgate_open_nameless(int directory, const char *path, unsigned mode);

/* Gives the open file `descriptor` the name `path` below `directory` (linkat(2) through /proc).
   Fails with EEXIST if the name is taken. */
int spoolgate_link_descriptor(int descriptor, int directory, const char *path);

/* fcntl(2) F_OFD_SETLK: an exclusive lock on all content, owned by the open file description.
   0: taken; 1: somebody else has it; -1: error. */
int spoolgate_try_lock(int descriptor);

/* fcntl(2) F_OFD_SETLKW: as above, waiting for it. 0 or -1. */
int spoolgate_wait_lock(int descriptor);

/* fcntl(2) F_OFD_GETLK. 1: another open file description has a lock; 0: none has; -1: error. */
int spoolgate_is_locked(int descriptor);

/* Sets or takes back a mark on a file, of which any number of open file descriptions can have one;
   it has nothing to do with the lock. 0 or -1. */
int spoolgate_set_mark(int descriptor, int on);

/* 1: another open file description has a mark; 0: none has; -1: error. */
int spoolgate_is_marked(int descriptor);

#endif
