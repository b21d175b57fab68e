/* What Swift's Glibc module does not have: GNU calls and constants, as plain prototypes.
   _GNU_SOURCE is defined in the .c files only; defining it here would split the C types that
   Swift sees. */
#ifndef SPOOLGATE_CLINUX_H
#define SPOOLGATE_CLINUX_H

#include <stddef.h>
#include <stdint.h>

/* Calls on files. */

/* openat(2) with O_TMPFILE | O_RDWR | O_CLOEXEC: a file without a name, on the file system of
   `directory`/`path`. -1 and EOPNOTSUPP, EISDIR or ENOENT where the file system has no such files. */
int spoolgate_open_nameless(int directory, const char *path, unsigned mode);

/* memfd_create(2), close-on-exec: an empty file in memory; `name` is for people who look. */
int spoolgate_memory_file(const char *name);

/* sync_file_range(2) with SYNC_FILE_RANGE_WRITE alone: the kernel begins to write. A flag that waits would
   take an error that fdatasync(2) must report. */
void spoolgate_begin_write_back(int descriptor, int64_t position, int64_t count);

/* copy_file_range(2): copies from one file into another, shared where the file system can. The bytes copied,
   0 at the end of the source, -1 on error. */
int64_t spoolgate_copy(int source, int64_t from, int target, int64_t to, int64_t count);

/* fcntl(2) F_OFD_SETLK: an exclusive lock on all content, owned by the open file description.
   0: taken; 1: somebody else has it; -1: error. */
int spoolgate_try_lock(int descriptor);

/* fcntl(2) F_OFD_GETLK. 1: another open file description has a lock; 0: none has; -1: error. */
int spoolgate_is_locked(int descriptor);

/* Sets or takes back a mark on a file, of which any number of open file descriptions can have one;
   it has nothing to do with the lock. 0 or -1. */
int spoolgate_set_mark(int descriptor, int on);

/* 1: another open file description has a mark; 0: none has; -1: error. */
int spoolgate_is_marked(int descriptor);

/* Calls on child processes. */

/* posix_spawn(3): starts `path` in a process group of its own, with every signal at its default and
   none blocked, with /dev/null as standard input, `output` and `errors` as the other two, and no
   other descriptor. 0 and *child, or an error number. */
int spoolgate_spawn(const char *path, char *const arguments[], char *const environment[],
                    int output, int errors, int32_t *child);

/* pipe2(2): both ends close-on-exec. 0 or -1. */
int spoolgate_pipe(int ends[2]);

/* fcntl(2) F_SETPIPE_SZ: has a pipe hold at least `size` bytes. What it holds, or -1: no pipe, or not allowed. */
int spoolgate_widen_pipe(int pipe, int size);

/* pidfd_open(2): becomes readable when the process has ended. -1 where there is none. */
int spoolgate_open_process(int32_t process);

/* waitpid(2) for a process that has ended or will very soon: 0 to 255 is its exit status, 1000 + n
   the signal that ended it, -1 an error. */
int spoolgate_reap(int32_t process);

/* Calls on sockets that Swift's Glibc module lacks or makes awkward (socket addresses, ioctl).
   All return -1 with errno set on failure unless said otherwise; all new descriptors are
   close-on-exec. Socket paths are given with their length; one that begins with a zero byte is an
   abstract address. */

/* accept4(2) with SOCK_CLOEXEC. */
int spoolgate_accept(int listener);

/* socket(2): a stream socket of the Unix domain. */
int spoolgate_unix_socket(void);

/* bind(2) of a Unix socket; ENAMETOOLONG if the path does not fit. */
int spoolgate_unix_bind(int socket, const char *path, size_t length);

/* connect(2) of a Unix socket, without waiting for room in the backlog. */
int spoolgate_unix_probe(int socket, const char *path, size_t length);

/* sendto(2) of one datagram to a Unix socket. */
int spoolgate_unix_send(const char *path, size_t length, const void *bytes, size_t count);

/* Resolves host and service and binds a TCP socket to the first address that can be had.
   Returns the socket; on failure -1, with *resolution the getaddrinfo(3) error or 0. */
int spoolgate_tcp_bind(const char *host, const char *service, int *resolution);

/* Whether the descriptor is a listening stream socket: 1, 0, or -1. */
int spoolgate_is_listening(int socket);

/* poll(2) without waiting: 1 if the peer has closed its side (with `both`: the whole connection,
   or there was an error), 0 if not. */
int spoolgate_is_hung_up(int socket, int both);

/* epoll_create1(2). */
int spoolgate_epoll(void);

/* epoll_ctl(2): says that `number` is to be waited for, for one event, or with `always` for each. An event
   comes with `token`. 0 or -1. */
int spoolgate_epoll_watch(int epoll, int number, uint64_t token, int always);

/* epoll_wait(2), without an end: 1 and *token for an event, with *hung_up where the peer has closed its
   side; 0 if a signal came first; -1. */
int spoolgate_epoll_wait(int epoll, uint64_t *token, int *hung_up);

/* eventfd(2): a count of zero, close-on-exec; no call on it waits. */
int spoolgate_event(void);

/* poll(2): waits until there is something to read on `socket`, or its end, or on `event`. 1: the event;
   2: the socket; 0: neither within so many milliseconds; -1. If both came, the event is told first. Never EINTR:
   a signal ends the wait with 1. */
int spoolgate_wait_for_either(int socket, int event, int milliseconds);

/* recvmsg(2) into two places, the second after the first is full; with `waits` it waits for the first
   byte. The bytes received, 0 at the end of the connection, or -1; never EINTR. */
int64_t spoolgate_receive(int socket, void *first, size_t first_count, void *second,
                          size_t second_count, int waits);

/* sendmsg(2) of two parts, all of both, without SIGPIPE. 0 or -1; never EINTR. */
int spoolgate_send(int socket, const void *first, size_t first_count, const void *second,
                   size_t second_count);

/* sendmsg(2) of a few bytes with a descriptor (SCM_RIGHTS) to a Unix socket, without SIGPIPE. The receiver gets
   the descriptor with the first of them. 0 or -1; never EINTR. */
int spoolgate_send_descriptor(int socket, const void *bytes, size_t count, int descriptor);

/* Calls on threads and the process. */

/* pthread_setname_np(3) for the calling thread; a name over 15 bytes is cut. */
void spoolgate_name_thread(const char *name);

/* Sets malloc(3) up for many threads that each hold little: few arenas, and freed buffers of up to a
   megabyte stay for the next request instead of being mapped anew. */
void spoolgate_tune_memory(void);

/* Gives the free pages of the heap back to the system, in whatever place: free(3) does so at an arena's
   end only. */
void spoolgate_release_heap(void);

/* Gives the pages of the calling thread's stack below its present frame back to the system: what a
   deep call touched once stays resident otherwise. Not for the main thread. */
void spoolgate_release_stack(void);

/* Terminals. */

/* wcwidth(3) of a Unicode scalar, whatever the process's locale is: 0 to 2, 0 where it cannot be shown. */
int spoolgate_columns(uint32_t scalar);

#endif
