/* Calls on child processes. */
#ifndef SPOOLGATE_CLINUX_PROCESS_H
#define SPOOLGATE_CLINUX_PROCESS_H

#include <stddef.h>
#include <stdint.h>

/* posix_spawn(3): starts `path` in a process group of its own, with every signal at its default and
   none blocked, with /dev/null as standard input, `output` and `errors` as the other two, and no
   other descriptor. 0 and *child, or an error number. */
int spoolgate_spawn(const char *path, char *const arguments[], char *const environment[],
                    int output, int errors, int32_t *child);

/* pipe2(2): the reading end of a pipe with these bytes in it, at most a page of them, and nobody to write
   more; close-on-exec. A descriptor or -1. */
int spoolgate_filled_pipe(const void *bytes, size_t count);

/* pipe2(2): both ends close-on-exec, the first one not blocking. 0 or -1. */
int spoolgate_output_pipe(int ends[2]);

/* pidfd_open(2): becomes readable when the process has ended. -1 where there is none. */
int spoolgate_open_process(int32_t process);

/* Waits for up to `milliseconds` until one of three descriptors can be read or was closed by its
   other end; -1 stands for none. Bit n of the result stands for the n-th; 0: the time is over. */
int spoolgate_wait_any(const int descriptors[3], int milliseconds);

/* waitpid(2) for a process that has ended or will very soon: 0 to 255 is its exit status, 1000 + n
   the signal that ended it, -1 an error. */
int spoolgate_reap(int32_t process);

#endif
